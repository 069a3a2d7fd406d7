//! Deleting for good: rows go, and with them the claims on their content.

use falaj_base::{ProjectId, Result};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::artifact::Artifact;
use super::parts::{self, part_claim};
use super::path::ArtifactPath;
use super::service::release;
use super::store;
use crate::experiment::ExperimentId;

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub files: u64,
    pub bytes: u64,
}

impl Purged {
    fn count(&mut self, artifact: &Artifact) {
        self.files += 1;
        self.bytes += artifact.size;
    }

    /// Deletes some of what lies below a folder, and at last the uploads to it that go on: the
    /// artifacts of a run, say, whose folder is [`proxied_path`](super::proxied_path) of its
    /// `artifact_uri`. Tells whether there may be more. Part of the caller's transaction, which
    /// was authorised and put on record.
    pub fn folder(
        tx: &mut Tx<'_>,
        project: ProjectId,
        folder: &ArtifactPath,
        limit: usize,
    ) -> Result<(Self, bool)> {
        let purged = path(tx, project, folder, limit)?;
        if purged.files == 0 {
            parts::end_below(tx, project, folder)?;
        }
        Ok((purged, purged.files > 0))
    }

    /// Deletes some of an experiment's artifacts, wherever they lie, and at last its uploads:
    /// likewise.
    pub fn experiment(
        tx: &mut Tx<'_>,
        project: ProjectId,
        id: ExperimentId,
        limit: usize,
    ) -> Result<(Self, bool)> {
        let found = store::of_experiment(tx, project, id, limit)?;
        let mut purged = Self::default();
        for artifact in &found {
            one(tx, project, artifact)?;
            purged.count(artifact);
        }
        if found.is_empty() {
            parts::end_of_experiment(tx, project, id)?;
        }
        Ok((purged, !found.is_empty()))
    }
}

/// Deletes a file, or some of what lies in a folder; fewer than `limit` means that it was all.
pub(super) fn path(
    tx: &mut Tx<'_>,
    project: ProjectId,
    path: &ArtifactPath,
    limit: usize,
) -> Result<Purged> {
    let mut found = store::in_folder(tx, project, path.as_str(), "", limit)?;
    if found.len() < limit {
        found.extend(store::find(tx, project, path)?);
    }
    let mut purged = Purged::default();
    for artifact in &found {
        one(tx, project, artifact)?;
        purged.count(artifact);
    }
    Ok(purged)
}

/// Deletes one file and its claims.
pub(super) fn one(tx: &mut Tx<'_>, project: ProjectId, artifact: &Artifact) -> Result<()> {
    if !store::delete(tx, project, artifact)? {
        return Ok(());
    }
    match artifact.blob {
        Some(blob) => release(tx, blob, &artifact.claim()),
        None => all_parts(tx, artifact.id),
    }
}

/// Deletes the parts of a content.
pub(super) fn all_parts(tx: &mut Tx<'_>, artifact: Uuid) -> Result<()> {
    for part in store::parts(tx, artifact)? {
        release(tx, part.blob, &part_claim(artifact, part.no))?;
        store::delete_part(tx, artifact, part.no)?;
    }
    Ok(())
}
