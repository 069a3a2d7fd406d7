//! Sealed bytes on their way into a store: gathered into parts, a few of them in flight.

use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{BlobId, Error, Result, code};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use super::failure::store_error;
use super::root::{Kind, Root};
use super::row;
use crate::db::Db;

/// The most parts an S3 upload may have.
const MAX_PARTS: usize = 10_000;

/// Who remembers the id of an unfinished upload, so that a crash leaves nothing for ever.
pub(super) enum Ledger {
    /// The blob's row; the collector reads it there.
    Row(Db, BlobId),
    /// Nobody: a restore has no rows yet. What it leaves if it fails is given up when dropped.
    None,
}

/// Writes one blob. Until [`PartWriter::finish`] has returned nothing of it can be read.
pub(super) struct PartWriter {
    root: Arc<Root>,
    ledger: Ledger,
    location: Path,
    part_size: usize,
    in_flight: usize,
    part: Vec<Bytes>,
    part_len: usize,
    /// None until there is more than one part: a small blob is one plain put.
    upload: Option<Upload>,
    sent: usize,
    tasks: JoinSet<Result<Option<(usize, PartId)>>>,
    parts: Vec<(usize, PartId)>,
}

enum Upload {
    /// The store keeps track; an upload that is dropped cleans up after itself.
    Simple(Box<dyn MultipartUpload>),
    /// We keep track of its id.
    Tracked(Arc<dyn MultipartStore>, String),
}

impl PartWriter {
    pub(super) fn new(
        root: &Arc<Root>,
        location: Path,
        ledger: Ledger,
        expected_len: Option<u64>,
        in_flight: usize,
    ) -> Self {
        // Where the number of parts is limited, a length known beforehand decides their size.
        let counted = matches!(root.kind, Kind::Bucket(_));
        let length = expected_len.filter(|_| counted).unwrap_or(0);
        let needed = usize::try_from(length.div_ceil(MAX_PARTS as u64 / 2)).unwrap_or(usize::MAX);
        Self {
            part_size: root.part_size.max(needed),
            root: root.clone(),
            ledger,
            location,
            in_flight: in_flight.max(1),
            part: Vec::new(),
            part_len: 0,
            upload: None,
            sent: 0,
            tasks: JoinSet::new(),
            parts: Vec::new(),
        }
    }

    /// Takes more sealed bytes; waits while enough parts are on their way.
    pub(super) async fn write(&mut self, mut piece: Bytes) -> Result<()> {
        // Every part but the last has the same length: some S3 servers insist on it.
        while self.part_len + piece.len() > self.part_size {
            let front = piece.split_to(self.part_size - self.part_len);
            self.keep(front);
            self.send().await?;
        }
        self.keep(piece);
        Ok(())
    }

    fn keep(&mut self, piece: Bytes) {
        self.part_len += piece.len();
        self.part.push(piece);
    }

    /// Sends the gathered part.
    async fn send(&mut self) -> Result<()> {
        if self.upload.is_none() {
            self.upload = Some(begin(&self.root, &self.location, &self.ledger).await?);
        }
        while self.tasks.len() >= self.in_flight {
            self.join_one().await?;
        }
        let payload = self.payload();
        let (number, location) = (self.sent, self.location.clone());
        self.sent += 1;
        match &mut self.upload {
            Some(Upload::Simple(upload)) => {
                let put = upload.put_part(payload);
                self.tasks.spawn(async move { put.await.map(|()| None).map_err(store_error) });
            }
            Some(Upload::Tracked(store, id)) => {
                if number >= MAX_PARTS {
                    let text = "an object sent without its length has 10,000 parts at most; \
                                send its length, or raise `objects.s3_part`";
                    return Err(Error::new(&code::TOO_LARGE, text));
                }
                let (store, id) = (store.clone(), id.clone());
                self.tasks.spawn(async move {
                    let part = store.put_part(&location, &id, number, payload).await;
                    part.map(|part| Some((number, part))).map_err(store_error)
                });
            }
            None => {}
        }
        Ok(())
    }

    fn payload(&mut self) -> PutPayload {
        self.part_len = 0;
        std::mem::take(&mut self.part).into_iter().collect()
    }

    async fn join_one(&mut self) -> Result<()> {
        if let Some(joined) = self.tasks.join_next().await {
            self.parts.extend(joined.map_err(Error::internal)??);
        }
        Ok(())
    }

    /// Puts the blob in its place. When this returns `Ok`, the bytes are durable.
    pub(super) async fn finish(mut self) -> Result<()> {
        if self.upload.is_none() {
            let payload = self.payload();
            let put = self.root.store.put(&self.location, payload).await;
            return put.map(drop).map_err(store_error);
        }
        if self.part_len > 0 {
            self.send().await?;
        }
        while !self.tasks.is_empty() {
            self.join_one().await?;
        }
        let completed = match &mut self.upload {
            Some(Upload::Simple(upload)) => upload.complete().await,
            Some(Upload::Tracked(store, id)) => {
                self.parts.sort_unstable_by_key(|(number, _)| *number);
                let parts = self.parts.drain(..).map(|(_, part)| part).collect();
                store.complete_multipart(&self.location, id, parts).await
            }
            None => return Err(Error::internal("the upload vanished")),
        };
        completed.map_err(store_error)?;
        self.upload = None;
        Ok(())
    }
}

/// Begins an upload of more than one part.
async fn begin(root: &Root, location: &Path, ledger: &Ledger) -> Result<Upload> {
    let Kind::Bucket(store) = &root.kind else {
        let upload = root.store.put_multipart(location).await;
        return upload.map(Upload::Simple).map_err(store_error);
    };
    let id = store.create_multipart(location).await.map_err(store_error)?;
    let upload = Upload::Tracked(store.clone(), id.clone());
    if let Ledger::Row(db, blob) = ledger {
        let blob = *blob;
        db.write(move |tx| row::note_upload(tx, blob, &id)).await?;
    }
    Ok(upload)
}

impl Drop for PartWriter {
    /// Gives up at once what nobody else would find. The collector does it for blobs with a row,
    /// surely and after a crash too.
    fn drop(&mut self) {
        let (Some(Upload::Tracked(store, id)), Ledger::None) = (self.upload.take(), &self.ledger)
        else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let location = self.location.clone();
        runtime.spawn(async move {
            if let Err(error) = store.abort_multipart(&location, &id).await {
                tracing::warn!(%location, id, %error, "an unfinished upload stays in the bucket");
            }
        });
    }
}
