//! Files on their way in, and what is here of them.

use axum::extract::Request;
use falaj_base::{Result, hex};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::objects::Expected;
use falaj_web::upload::{announced, pieces};

use super::wire::{FileHere, FilesAsked, FilesHere};
use crate::artifact::{ArtifactPath, files_after, guessed_type};
use crate::{IMPORT, IMPORT_CHECK, Tracking};

/// How many files one reply lists.
const PAGE: usize = 1000;

impl Tracking {
    /// Takes a file, also one of a run that is in the bin.
    pub(super) async fn import_file(
        &self,
        call: &Call,
        path: ArtifactPath,
        request: Request,
    ) -> Result<FileHere> {
        let owner = self.artifact_owner(call, &path, &IMPORT).await?.even_in_bin();
        let content_type = guessed_type(path.file_name());
        let expected = Expected { size: announced(request.headers()), sha256: None };
        let (content, limits) = (pieces(request.into_body()), self.artifact_limits());
        let new =
            self.put_owned(call, owner, path, content_type, content, (expected, limits)).await?;
        let content = self.artifact_content(call.place.tenant_id, &new).await?;
        Ok(FileHere {
            path: new.path.to_string(),
            size: new.size,
            sha256: content.sha256().map(|digest| hex(&digest)),
        })
    }

    /// The files below a folder, from there.
    pub(super) async fn files_here(&self, call: &Call, asked: FilesAsked) -> Result<FilesHere> {
        let folder = ArtifactPath::new(asked.folder)?;
        self.artifact_owner(call, &folder, &IMPORT_CHECK).await?;
        let (project, name) = (call.place.id, folder.to_string());
        let read = move |tx: &mut Tx<'_>| files_after(tx, project, &name, &asked.after, PAGE + 1);
        let mut found = self.db().read(read).await?;
        let more = found.len() > PAGE;
        found.truncate(PAGE);
        let below = folder.as_str().len() + 1;
        let mut files = Vec::with_capacity(found.len());
        for artifact in found {
            let content = self.artifact_content(call.place.tenant_id, &artifact).await?;
            files.push(FileHere {
                path: artifact.path.as_str().get(below..).unwrap_or_default().to_owned(),
                size: artifact.size,
                sha256: content.sha256().map(|digest| hex(&digest)),
            });
        }
        let next = files.last().filter(|_| more).map(|last| last.path.clone());
        Ok(FilesHere { files, next })
    }
}
