//! Large files in parts, so that what broke is sent again and not everything.
//!
//! ```text
//! begin     a row, and a signed URL for each part
//! part      each a blob of its own, in any order, again if need be
//! complete  the parts become the content of the artifact as they lie: no byte is moved
//! ```
//!
//! Must hold: parts of an upload that is not completed are deleted once its time has passed.

use std::time::Duration;

use bytes::Bytes;
use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_governance::residency::on_record;
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects, Staged};
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use futures::Stream;
use http::HeaderMap;
use serde_json::json;
use uuid::Uuid;

use super::artifact::Artifact;
use super::grant::Issuer;
use super::media;
use super::parts::{self, Upload, part_claim};
use super::path::ArtifactPath;
use super::service::{CLAIM, bounded, make_room, release, too_large, written};
use super::store::{self, PartRow};
use crate::{RUN_WRITE, Tracking};

/// How often abandoned uploads are looked for, and how many are ended at a time.
const SWEEP: Duration = Duration::from_mins(10);
const SWEEP_BATCH: u32 = 100;

/// An upload that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) id: Uuid,
    pub(super) expires_at: Timestamp,
}

/// A part as the caller names it on completion.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) no: u32,
    pub(super) tag: String,
}

impl Tracking {
    pub(super) async fn begin_upload(
        &self,
        call: &Call,
        path: ArtifactPath,
        count: u32,
    ) -> Result<Begun> {
        let config = &self.config().artifact;
        if count == 0 {
            return Err(invalid("num_parts", &json!(count), "an upload has at least one part"));
        }
        if count > config.max_parts {
            // The first words tell clients to send the file whole, which any file can be.
            let text = "Multipart upload is not supported for the current artifact repository";
            return Err(refused(format!("{text} beyond {} parts", config.max_parts)));
        }
        let owner = self.artifact_owner(call, &path, &RUN_WRITE).await?;
        owner.check_open()?;
        let place = &call.place;
        let placed = self.objects().check_zone(&place.zone);
        on_record(self.db(), &call.ctx, &RUN_WRITE, &owner.resource, placed).await?;
        let upload = Upload {
            id: Uuid::now_v7(),
            tenant: place.tenant_id,
            project: place.id,
            zone: place.zone.clone(),
            path: path.to_string(),
            experiment: owner.experiment,
            run: owner.run,
            model: owner.model.clone(),
            parts: count,
            issuer: Issuer::of(&call.ctx),
            expires_at: self.db().now() + config.part_lifetime.get(),
        };
        let begun = Begun { id: upload.id, expires_at: upload.expires_at };
        let (ctx, most) = (call.ctx.clone(), config.max_open_uploads);
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("artifact-uploads/{}", upload.project))?;
            if parts::count(tx, upload.project)? >= most {
                let text = format!("the project has {most} uploads that have not ended");
                return Err(Error::new(&code::CONFLICT, text));
            }
            parts::insert(tx, &upload)?;
            let change = Change::new(&RUN_WRITE, &owner.resource)
                .detail("path", &path)
                .detail("upload", upload.id.simple())
                .detail("parts", count);
            tx.record(&ctx, change)
        };
        self.db().write(write).await?;
        Ok(begun)
    }

    /// The upload that a part is for, if it still goes on.
    pub(super) async fn open_upload(&self, id: Uuid) -> Result<Upload> {
        let found = self.db().read(move |tx| parts::find(tx, id)).await?;
        let now = self.db().now();
        found.filter(|upload| upload.expires_at > now).ok_or_else(|| no_upload(id))
    }

    /// Takes one part, in place of an earlier try. The tag is wanted back on completion.
    pub(super) async fn put_part<S>(
        &self,
        ctx: &Ctx,
        upload: &Upload,
        no: u32,
        content: S,
        expected: Expected,
    ) -> Result<String>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        let most = self.config().artifact.max_part_size.bytes();
        if expected.size.is_some_and(|size| size > most) {
            return Err(too_large(most));
        }
        let content = bounded(content, most);
        let staged = self.objects().upload(upload.tenant, &upload.zone, content, expected).await?;
        let blob = staged.blob;
        let attached = self.attach_part(ctx, upload, no, staged).await;
        if attached.is_err() {
            self.objects().discard(blob).await;
        }
        attached
    }

    async fn attach_part(
        &self,
        ctx: &Ctx,
        upload: &Upload,
        no: u32,
        staged: Staged,
    ) -> Result<String> {
        let (ctx, id, resource) = (ctx.clone(), upload.id, upload.resource());
        let most = self.config().artifact.max_size.bytes();
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("artifact-upload/{}", id.simple()))?;
            let old = store::part(tx, id, no)?;
            let more = i64::try_from(staged.size).map_err(Error::internal)?
                - i64::try_from(old.as_ref().map_or(0, |old| old.size)).map_err(Error::internal)?;
            if parts::grow(tx, id, more)?.ok_or_else(|| no_upload(id))? > most {
                return Err(too_large(most));
            }
            if let Some(old) = old {
                release(tx, old.blob, &part_claim(id, no))?;
                store::delete_part(tx, id, no)?;
            }
            let blob = Objects::attach(tx, &staged, CLAIM, &part_claim(id, no))?;
            let tag = Uuid::now_v7().simple().to_string();
            store::insert_part(tx, id, &PartRow { no, blob, size: staged.size, tag: tag.clone() })?;
            let change = Change::new(&RUN_WRITE, &resource)
                .detail("upload", id.simple())
                .detail("part", no)
                .detail("via", "signed URL");
            tx.record(&ctx, change)?;
            Ok(tag)
        };
        self.db().write(write).await
    }

    /// Makes the parts the content of the artifact. Asked again, because the reply was lost, it
    /// answers the same.
    pub(super) async fn complete_upload(
        &self,
        call: &Call,
        path: ArtifactPath,
        id: Uuid,
        sent: Vec<Sent>,
    ) -> Result<()> {
        let owner = self.artifact_owner(call, &path, &RUN_WRITE).await?;
        owner.check_open()?;
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let content_type = media::content_type(path.file_name(), &HeaderMap::new());
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("artifact-upload/{}", id.simple()))?;
            let upload = parts::find(tx, id)?;
            let upload = upload.filter(|one| one.project == project && one.path == path.as_str());
            if upload.is_none() {
                let done = store::find(tx, project, &path)?.filter(|artifact| artifact.id == id);
                let done = done.ok_or_else(|| no_upload(id))?;
                return tx.record(&ctx, written(&owner, &done));
            }
            let size = keep_parts(tx, id, &sent)?;
            parts::delete(tx, id)?;
            make_room(tx, project, &owner, &path)?;
            let new = Artifact {
                id,
                path,
                experiment: owner.experiment,
                run: owner.run,
                model: owner.model.clone(),
                blob: None,
                size,
                content_type,
                created_at: tx.now(),
            };
            store::insert(tx, project, &new)?;
            tx.record(&ctx, written(&owner, &new))
        };
        self.db().write(write).await
    }

    pub(super) async fn abort_upload(
        &self,
        call: &Call,
        path: ArtifactPath,
        id: Uuid,
    ) -> Result<()> {
        let owner = self.artifact_owner(call, &path, &RUN_WRITE).await?;
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("artifact-upload/{}", id.simple()))?;
            let upload = parts::find(tx, id)?;
            let upload = upload.filter(|one| one.project == project && one.path == path.as_str());
            upload.ok_or_else(|| no_upload(id))?;
            parts::end(tx, id)?;
            let change = Change::new(&RUN_WRITE, &owner.resource)
                .detail("path", &path)
                .detail("aborted", id.simple());
            tx.record(&ctx, change)
        };
        self.db().write(write).await
    }

    /// Ends uploads whose time has passed, and deletes their parts.
    pub async fn end_expired_uploads(&self) -> Result<u64> {
        let mut ended = 0;
        loop {
            let now = self.db().now();
            let found = self.db().read(move |tx| parts::expired(tx, now, SWEEP_BATCH)).await?;
            if found.is_empty() {
                return Ok(ended);
            }
            for id in found {
                let end = move |tx: &mut Tx<'_>| {
                    tx.lock(&format!("artifact-upload/{}", id.simple()))?;
                    parts::end(tx, id)
                };
                ended += u64::from(self.db().write(end).await?);
            }
        }
    }
}

/// Checks that every part named is there as it was sent, drops the others, and tells the size.
fn keep_parts(tx: &mut Tx<'_>, id: Uuid, sent: &[Sent]) -> Result<u64> {
    if sent.is_empty() || !sent.is_sorted_by(|a, b| a.no < b.no) {
        return Err(refused("The parts must be listed in order, each of them once").at("parts"));
    }
    let mut size = 0;
    let mut sent = sent.iter().peekable();
    for part in store::parts(tx, id)? {
        match sent.next_if(|sent| sent.no == part.no) {
            Some(sent) if sent.tag == part.tag => size += part.size,
            Some(sent) => return Err(refused(format!("Part {} has another ETag", sent.no))),
            None => {
                release(tx, part.blob, &part_claim(id, part.no))?;
                store::delete_part(tx, id, part.no)?;
            }
        }
    }
    match sent.next() {
        Some(missing) => Err(refused(format!("Part {} has not been uploaded", missing.no))),
        None => Ok(size),
    }
}

fn no_upload(id: Uuid) -> Error {
    let text = format!("No upload with id={} is under way", id.simple());
    Error::new(&code::NOT_FOUND, text)
}

/// The worker that ends abandoned uploads.
#[must_use]
pub fn workers(tracking: &Tracking) -> Vec<Worker> {
    let tracking = tracking.clone();
    let run = move || {
        let tracking = tracking.clone();
        async move {
            let ended = tracking.end_expired_uploads().await?;
            if ended > 0 {
                tracing::info!(ended, "ended uploads whose time had passed");
            }
            Ok(())
        }
    };
    vec![Worker::new("artifact-uploads", SWEEP, run)]
}
