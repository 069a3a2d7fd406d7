//! Files on their way in, and what is here of them.

use axum::extract::Request;
use falaj_base::{Error, Result, code, hex};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::objects::Expected;
use falaj_web::upload::{announced, pieces};

use super::origin::{self, Kind};
use super::wire::{FileHere, FilesAsked, FilesHere};
use super::{Mover, Way, not_from};
use crate::artifact::{ArtifactPath, Owner, files_after, guessed_type};
use crate::logged_model::ModelId;
use crate::{IMPORT_CHECK, RUN_WRITE, Tracking};

/// How many files one reply lists.
const PAGE: usize = 1000;

impl Tracking {
    /// Takes a file of a run or a logged model that came from the same source; of an import also
    /// one that is in the bin, and files that belong to a registered model alone.
    pub(super) async fn import_file(
        &self,
        call: &Call,
        (way, source): (Way, String),
        path: ArtifactPath,
        request: Request,
    ) -> Result<FileHere> {
        let mover = Mover::new(call, way, source)?;
        if way == Way::Sync {
            self.artifact_owner(call, &path, &RUN_WRITE).await?;
        }
        let owner = self.artifact_owner(call, &path, way.action()).await?;
        self.check_origin(&mover, &owner, &path).await?;
        let owner = if way == Way::Import { owner.even_in_bin() } else { owner };
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

    /// Files of what did not come from the source are not its to write.
    async fn check_origin(&self, mover: &Mover, owner: &Owner, path: &ArtifactPath) -> Result<()> {
        let of = match (owner.run, &owner.model) {
            (Some(run), _) => Some((Kind::Run, run.0)),
            (None, Some(model)) => ModelId::parse(model).map(|id| (Kind::Model, id.0)),
            (None, None) => None,
        };
        let Some((kind, id)) = of else {
            if mover.way == Way::Import {
                return Ok(());
            }
            let text = format!("{path} lies in no run and in no logged model");
            return Err(Error::new(&code::INVALID_INPUT, text).at("path"));
        };
        let (project, source) = (mover.project(), mover.source.clone());
        let read = move |tx: &mut Tx<'_>| {
            origin::is_from(tx, (kind, &id.as_bytes()[..]), project, &source)
        };
        if self.db().read(read).await? {
            return Ok(());
        }
        Err(not_from(mover, "path", &format!("the owner of {path}")))
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
