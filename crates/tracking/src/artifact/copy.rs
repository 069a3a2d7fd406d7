//! Copies that move no bytes: the copy refers to the same blobs.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Place;
use falaj_store::db::Tx;
use falaj_store::objects::Objects;
use uuid::Uuid;

use super::artifact::Artifact;
use super::owner::Owner;
use super::parts::part_claim;
use super::path::ArtifactPath;
use super::service::{CLAIM, make_room};
use super::store;

/// How many rows are held in memory at a time.
const AT_ONCE: usize = 500;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    pub bytes: u64,
}

impl Copied {
    /// Copies everything in a folder into another, as part of the caller's transaction, which has
    /// authorised reading the one and writing the other, and records the change. Files that are
    /// there already under the same names are replaced.
    ///
    /// A blob lies in a zone, sealed by a key of one tenant: neither border is crossed.
    pub fn folder(
        tx: &mut Tx<'_>,
        from: (&Place, &ArtifactPath),
        to: (&Place, &ArtifactPath),
        owner: &Owner,
    ) -> Result<Self> {
        let ((source, folder), (target, place)) = (from, to);
        if source.tenant_id != target.tenant_id || source.zone != target.zone {
            let rule = "artifacts are copied within one tenant and one zone only";
            return Err(Error::new(&code::RESIDENCY, rule));
        }
        let inside = |inner: &ArtifactPath, outer: &ArtifactPath| {
            inner == outer || inner.as_str().starts_with(&format!("{outer}/"))
        };
        if source.id == target.id && (inside(place, folder) || inside(folder, place)) {
            return Err(Error::invalid("path", place, "a folder apart from the one copied"));
        }
        let (mut copied, mut from) = (Self::default(), String::new());
        loop {
            let found = store::in_folder(tx, source.id, folder.as_str(), &from, AT_ONCE)?;
            let Some(last) = found.last() else { return Ok(copied) };
            // The least path after the last one.
            from = format!("{}\u{1}", last.path);
            for artifact in found {
                let name = &artifact.path.as_str()[folder.as_str().len() + 1..];
                let new = renamed(tx, &artifact, place.join(name)?, owner);
                make_room(tx, target.id, owner, &new.path)?;
                share(tx, source, &artifact, &new)?;
                store::insert(tx, target.id, &new)?;
                copied.files += 1;
                copied.bytes += new.size;
            }
        }
    }
}

fn renamed(tx: &Tx<'_>, artifact: &Artifact, path: ArtifactPath, owner: &Owner) -> Artifact {
    Artifact {
        id: Uuid::now_v7(),
        path,
        experiment: owner.experiment,
        run: owner.run,
        model: owner.model.clone(),
        blob: artifact.blob,
        size: artifact.size,
        content_type: artifact.content_type.clone(),
        created_at: tx.now(),
    }
}

/// Gives the copy its own claims on the content.
fn share(tx: &mut Tx<'_>, source: &Place, old: &Artifact, new: &Artifact) -> Result<()> {
    let tenant = source.tenant_id;
    if let Some(blob) = old.blob {
        return Objects::share(tx, tenant, blob, CLAIM, &new.claim());
    }
    for part in store::parts(tx, old.id)? {
        Objects::share(tx, tenant, part.blob, CLAIM, &part_claim(new.id, part.no))?;
        store::insert_part(tx, new.id, &part)?;
    }
    Ok(())
}
