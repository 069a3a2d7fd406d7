//! Blobs as they lie in their roots, sealed: for backup and restore, which need no key for them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use falaj_base::{BlobId, Error, Name, Result, TenantId, code};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};

use super::Objects;
use super::config::ObjectsConfig;
use super::failure::store_error;
use super::root::Root;

/// How many blobs are removed at a time.
const REMOVALS: usize = 16;

impl Objects {
    /// The sealed bytes of a blob, in order.
    pub async fn sealed_bytes(
        &self,
        tenant: TenantId,
        blob: BlobId,
        root: &Name,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let root = self.root(root)?;
        let found = root.store.get(&root.location(tenant, blob)).await.map_err(store_error)?;
        Ok(found.into_stream().map(|piece| piece.map_err(store_error)).boxed())
    }
}

/// The roots of a place that is being restored, before there is a database beside them.
#[derive(Debug)]
pub struct SealedRoots {
    roots: Vec<Arc<Root>>,
    made: Made,
}

/// The blobs that a restore added: what it has to take away again if it fails.
type Made = Arc<Mutex<Vec<(Arc<Root>, TenantId, BlobId)>>>;

impl SealedRoots {
    pub fn open(config: &ObjectsConfig, data_dir: &Path) -> Result<Self> {
        let open = |root| Root::open(root, config, data_dir).map(Arc::new);
        let roots = config.roots.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { roots, made: Made::default() })
    }

    /// Removes every blob that was added through these roots. One that lay there before is left
    /// alone: another server may use it. Answers how many could not be removed.
    pub async fn undo(&self) -> usize {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        let removals = made.into_iter().map(|(root, tenant, blob)| async move {
            let removed = root.store.delete(&root.location(tenant, blob)).await;
            !matches!(removed, Ok(()) | Err(object_store::Error::NotFound { .. }))
        });
        let removals = futures::stream::iter(removals).buffer_unordered(REMOVALS);
        removals.filter(|failed| std::future::ready(*failed)).count().await
    }

    /// Begins to write a blob to where the backup says it lay.
    pub fn writer(&self, tenant: TenantId, blob: BlobId, root: &Name) -> Result<SealedWriter> {
        let root = self.roots.iter().find(|known| known.name == *root).ok_or_else(|| {
            let text = format!("the backup has objects of root `{root}`, which is not configured");
            Error::new(&code::INVALID_CONFIG, text).at("objects.roots")
        })?;
        let location = root.location(tenant, blob);
        Ok(SealedWriter {
            root: root.clone(),
            blob: (tenant, blob),
            location,
            part: Vec::new(),
            length: 0,
            upload: None,
            made: self.made.clone(),
        })
    }
}

/// Writes one sealed blob; it is in its place, durably, once [`SealedWriter::finish`] returns.
pub struct SealedWriter {
    root: Arc<Root>,
    blob: (TenantId, BlobId),
    location: object_store::path::Path,
    part: Vec<Bytes>,
    length: usize,
    upload: Option<Box<dyn MultipartUpload>>,
    made: Made,
}

impl SealedWriter {
    pub async fn write(&mut self, mut piece: Bytes) -> Result<()> {
        // Every part but the last has the same length: some S3 servers insist on it.
        while self.length + piece.len() > self.root.part_size {
            let front = piece.split_to(self.root.part_size - self.length);
            self.part.push(front);
            self.send().await?;
        }
        self.length += piece.len();
        self.part.push(piece);
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let begun = self.root.store.put_multipart(&self.location).await;
                none.insert(begun.map_err(store_error)?)
            }
        };
        self.length = 0;
        upload.put_part(payload(&mut self.part)).await.map_err(store_error)
    }

    pub async fn finish(mut self) -> Result<()> {
        let there = self.root.store.head(&self.location).await.is_ok();
        self.complete().await?;
        if !there {
            let (tenant, blob) = self.blob;
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.push((self.root.clone(), tenant, blob));
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<()> {
        if self.upload.is_none() {
            let put = self.root.store.put(&self.location, payload(&mut self.part)).await;
            return put.map(drop).map_err(store_error);
        }
        if self.length > 0 {
            self.send().await?;
        }
        match &mut self.upload {
            Some(upload) => upload.complete().await.map(drop).map_err(store_error),
            None => Err(Error::internal("the upload vanished")),
        }
    }
}

fn payload(part: &mut Vec<Bytes>) -> PutPayload {
    std::mem::take(part).into_iter().collect()
}

impl std::fmt::Debug for SealedWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedWriter").field("location", &self.location).finish_non_exhaustive()
    }
}
