//! The files of a folder, for a domain that allows its callers to see them by rules of its own: a
//! registered model shows its files to whoever may read the model.
//!
//! Nothing here asks who the caller is. What is read this way was authorised before, or is read by
//! the platform's own work.

use falaj_base::{ProjectId, Result, TenantId};
use falaj_store::db::Tx;

use super::artifact::Artifact;
use super::content::Content;
use super::path::ArtifactPath;
use super::store;
use crate::Tracking;
use crate::run::load::load;
use crate::run::{Run, RunId, store as runs};

/// The first files below a folder, however deep, in the order of their paths.
pub fn files_below(
    tx: &mut Tx<'_>,
    project: ProjectId,
    folder: &ArtifactPath,
    most: usize,
) -> Result<Vec<Artifact>> {
    store::in_folder(tx, project, folder.as_str(), "", most)
}

impl Tracking {
    /// Opens the content of a file that [`files_below`] found.
    pub async fn open_file(&self, tenant: TenantId, file: &Artifact) -> Result<Content> {
        self.content(tenant, file).await
    }

    /// A run of this project, whole; none if it is another project's, or nobody's.
    pub async fn run_in(&self, project: ProjectId, run: &str) -> Result<Option<Run>> {
        let Ok(Some(run)) = RunId::parse(run) else { return Ok(None) };
        self.db()
            .read(move |tx| {
                let home = runs::address(tx, run)?;
                if home.is_none_or(|home| home.project != project) {
                    return Ok(None);
                }
                Ok(load(tx, &[run])?.pop())
            })
            .await
    }
}
