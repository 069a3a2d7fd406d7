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

/// How many rows are held in memory at a time.
const AT_ONCE: usize = 500;

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

    /// Deletes everything below a folder, and uploads to it that go on: the artifacts of a run,
    /// say, whose folder is [`proxied_path`](super::proxied_path) of its `artifact_uri`. Part of
    /// the caller's transaction, which has authorised and records it.
    pub fn folder(tx: &mut Tx<'_>, project: ProjectId, folder: &ArtifactPath) -> Result<Self> {
        let mut purged = Self::default();
        loop {
            let done = path(tx, project, folder, AT_ONCE)?;
            purged.files += done.files;
            purged.bytes += done.bytes;
            if done.files < AT_ONCE as u64 {
                break;
            }
        }
        parts::end_below(tx, project, folder)?;
        Ok(purged)
    }

    /// Deletes all artifacts of an experiment, wherever they lie, and its uploads: likewise.
    pub fn experiment(tx: &mut Tx<'_>, project: ProjectId, id: ExperimentId) -> Result<Self> {
        let mut purged = Self::default();
        loop {
            let found = store::of_experiment(tx, project, id, AT_ONCE)?;
            if found.is_empty() {
                break;
            }
            for artifact in &found {
                one(tx, project, artifact)?;
                purged.count(artifact);
            }
        }
        parts::end_of_experiment(tx, project, id)?;
        Ok(purged)
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
