//! Writing, reading and deleting artifacts.

use bytes::Bytes;
use falaj_base::{Action, BlobId, Error, ProjectId, Resource, Result, code};
use falaj_governance::residency::on_record;
use falaj_mlflow::Call;
use falaj_mlflow::error::refused;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects};
use falaj_store::record::{AuditEntry, Change};
use futures::{Stream, StreamExt};
use serde_json::json;
use uuid::Uuid;

use super::artifact::Artifact;
use super::content::Content;
use super::owner::Owner;
use super::path::ArtifactPath;
use super::{purge, store};
use crate::purge::check_no_hold;
use crate::{ARTIFACT_DELETE, RUN_READ, RUN_WRITE, Tracking};

/// How a blob knows that an artifact, or a part of one, refers to it.
pub(super) const CLAIM: &str = "artifact";

/// How much content a request may bring.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub least: u64,
    pub most: u64,
}

impl Tracking {
    /// What any artifact may measure.
    #[must_use]
    pub fn artifact_limits(&self) -> Limits {
        Limits { least: 0, most: self.config().artifact.max_size.bytes() }
    }

    /// Stores a file, in place of one at the same path if there is one.
    pub async fn put_artifact<S>(
        &self,
        call: &Call,
        path: ArtifactPath,
        content_type: String,
        content: S,
        expected: Expected,
        limits: Limits,
    ) -> Result<Artifact>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        let owner = self.artifact_owner(call, &path, &RUN_WRITE).await?;
        owner.check_open()?;
        self.put_owned(call, owner, path, content_type, content, (expected, limits)).await
    }

    /// The same for an owner that was found already, and for what that was authorised for.
    pub(crate) async fn put_owned<S>(
        &self,
        call: &Call,
        owner: Owner,
        path: ArtifactPath,
        content_type: String,
        content: S,
        (expected, limits): (Expected, Limits),
    ) -> Result<Artifact>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        if expected.size.is_some_and(|size| size > limits.most) {
            return Err(too_large(limits.most));
        }
        let place = &call.place;
        // Before the first byte is read: the zone must have a root and a key manager.
        let placed = self.objects().check_zone(&place.zone);
        on_record(self.db(), &call.ctx, owner.action, &owner.resource, placed).await?;
        let content = bounded(content, limits.most);
        let staged = self.objects().upload(place.tenant_id, &place.zone, content, expected).await?;
        let blob = staged.blob;
        if staged.size < limits.least {
            self.objects().discard(blob).await;
            return Err(refused("Request must specify data."));
        }
        let mut new = Artifact {
            id: Uuid::now_v7(),
            path,
            experiment: owner.experiment,
            run: owner.run,
            model: owner.model.clone(),
            blob: Some(blob),
            size: staged.size,
            content_type,
            created_at: self.db().now(),
        };
        let (ctx, project) = (call.ctx.clone(), place.id);
        let placed = self.db().write(move |tx| {
            make_room(tx, project, &owner, &new.path)?;
            new.blob = Some(Objects::attach(tx, &staged, CLAIM, &new.claim())?);
            store::insert(tx, project, &new)?;
            tx.record(&ctx, written(&owner, &new))?;
            Ok(new)
        });
        let placed = placed.await;
        if placed.is_err() {
            self.objects().discard(blob).await;
        }
        placed
    }

    /// A file and its content, ready to be read.
    pub async fn open_artifact(
        &self,
        call: &Call,
        path: &ArtifactPath,
    ) -> Result<(Artifact, Content)> {
        let owner = self.artifact_owner(call, path, &RUN_READ).await?;
        self.open_artifact_as(call, path, &RUN_READ, &owner.resource).await
    }

    /// The same for a caller whom something else allows to read it: a registered model, say. That
    /// must have been authorised already.
    pub async fn open_artifact_as(
        &self,
        call: &Call,
        path: &ArtifactPath,
        action: &'static Action,
        resource: &Resource,
    ) -> Result<(Artifact, Content)> {
        if !call.ctx.is_authorized(action, resource) {
            return Err(Error::internal(format!("{} was not authorised", action.name)));
        }
        let project = call.place.id;
        let artifact = self.find_artifact(project, path).await?;
        let content = self.content(call.place.tenant_id, &artifact).await?;
        let mut entry = AuditEntry::allowed(&call.ctx, action, resource, self.db().now());
        entry.details.insert("path".to_owned(), path.to_string());
        self.reads().note(entry);
        Ok((artifact, content))
    }

    /// A file that must be there; a folder is another answer than nothing.
    pub(super) async fn find_artifact(
        &self,
        project: ProjectId,
        path: &ArtifactPath,
    ) -> Result<Artifact> {
        let wanted = path.clone();
        let (found, folder) = self
            .db()
            .read(move |tx| {
                let found = store::find(tx, project, &wanted)?;
                let folder = found.is_none()
                    && !store::in_folder(tx, project, wanted.as_str(), "", 1)?.is_empty();
                Ok((found, folder))
            })
            .await?;
        if folder {
            let text = format!("Artifact path refers to a directory, not a file: '{path}'");
            return Err(refused(text));
        }
        found.ok_or_else(|| no_artifact(path))
    }

    /// The content of a file that was found already.
    pub(crate) async fn artifact_content(
        &self,
        tenant: falaj_base::TenantId,
        artifact: &Artifact,
    ) -> Result<Content> {
        self.content(tenant, artifact).await
    }

    pub(super) async fn content(
        &self,
        tenant: falaj_base::TenantId,
        artifact: &Artifact,
    ) -> Result<Content> {
        if let Some(blob) = artifact.blob {
            return Content::whole(self.objects(), tenant, blob).await;
        }
        let id = artifact.id;
        let parts = self.db().read(move |tx| store::parts(tx, id)).await?;
        Content::parts(self.objects(), tenant, parts).await
    }

    /// Deletes a file, or a folder and everything in it. What is not there is deleted already.
    pub async fn delete_artifacts(&self, call: &Call, path: &ArtifactPath) -> Result<()> {
        let owner = self.artifact_owner(call, path, &ARTIFACT_DELETE).await?;
        let project = call.place.id;
        if !owner.is_one() {
            // A folder above runs holds what others must allow to be deleted as well.
            let folder = path.to_string();
            let inside =
                self.db().read(move |tx| store::experiments_in(tx, project, &folder)).await?;
            for experiment in inside {
                if Some(experiment) != owner.experiment {
                    self.experiment(call, experiment, &ARTIFACT_DELETE).await?;
                }
            }
        }
        let batch = self.config().artifact.delete_batch.max(1);
        loop {
            let (ctx, path, resource) = (call.ctx.clone(), path.clone(), owner.resource.clone());
            let deleted = self.db().write(move |tx| {
                let experiments = store::holders_in(tx, project, path.as_str())?;
                check_no_hold(tx, project, experiments)?;
                let done = purge::path(tx, project, &path, batch)?;
                let gone = json!({"path": path.as_str(), "files": done.files, "bytes": done.bytes});
                let mut change = Change::new(&ARTIFACT_DELETE, &resource)
                    .before(&gone)
                    .detail("deleted", &path)
                    .detail("files", done.files);
                if done.files > 0 {
                    change = change.event("artifact.deleted", &gone);
                }
                tx.record(&ctx, change)?;
                Ok(done.files)
            });
            if deleted.await? < batch as u64 {
                return Ok(());
            }
        }
    }
}

/// Prepares a path for a new file: the owner takes it, no file or folder stands in its way, and
/// what was there before goes.
pub(super) fn make_room(
    tx: &mut Tx<'_>,
    project: ProjectId,
    owner: &Owner,
    path: &ArtifactPath,
) -> Result<()> {
    // One at a time for each owner: two that replace the same file must not both find the old one,
    // and of `a` and `a/b` only one can come to be.
    owner.check_still_open(tx, project)?;
    if let Some(file) = store::file_above(tx, project, path)? {
        return Err(refused(format!("'{file}' is a file: nothing can lie below it")));
    }
    if !store::in_folder(tx, project, path.as_str(), "", 1)?.is_empty() {
        return Err(refused(format!("'{path}' is a directory: a file cannot take its place")));
    }
    if let Some(old) = store::find(tx, project, path)? {
        check_no_hold(tx, project, [old.experiment])?;
        purge::one(tx, project, &old)?;
    }
    Ok(())
}

/// How a new file is put on record.
pub(super) fn written<'a>(owner: &'a Owner, new: &Artifact) -> Change<'a> {
    Change::new(owner.action, &owner.resource)
        .event("artifact.written", &new.shown())
        .after(&new.shown())
        .detail("path", &new.path)
}

/// The content, cut off with an error where it becomes too long.
pub(super) fn bounded<S>(content: S, most: u64) -> impl Stream<Item = Result<Bytes>> + Send
where
    S: Stream<Item = Result<Bytes>> + Send,
{
    let mut size = 0;
    content.map(move |piece| {
        let piece = piece?;
        size += piece.len() as u64;
        if size > most { Err(too_large(most)) } else { Ok(piece) }
    })
}

pub(super) fn too_large(most: u64) -> Error {
    let text = format!("Artifact size is too large. Max size is {most} bytes.");
    Error::new(&code::TOO_LARGE, text)
}

pub(super) fn no_artifact(path: &ArtifactPath) -> Error {
    let shown: String = path.as_str().chars().take(200).collect();
    Error::new(&code::NOT_FOUND, format!("No such artifact: '{shown}'"))
}

/// Takes the claim of a file or part on its blob away.
pub(super) fn release(tx: &mut Tx<'_>, blob: BlobId, claim: &str) -> Result<()> {
    Objects::detach(tx, blob, CLAIM, claim)
}
