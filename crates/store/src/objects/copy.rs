//! Blobs as they lie in their roots, sealed: for backup and restore, which need no key for them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{BlobId, Error, Name, Result, TenantId, code};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};

use super::Objects;
use super::config::ObjectsConfig;
use super::failure::store_error;
use super::root::Root;

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
pub struct SealedRoots(Vec<Arc<Root>>);

impl SealedRoots {
    pub fn open(config: &ObjectsConfig, data_dir: &Path) -> Result<Self> {
        let open = |root| Root::open(root, config, data_dir).map(Arc::new);
        config.roots.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// Begins to write a blob to where the backup says it lay.
    pub fn writer(&self, tenant: TenantId, blob: BlobId, root: &Name) -> Result<SealedWriter> {
        let root = self.0.iter().find(|known| known.name == *root).ok_or_else(|| {
            let text = format!("the backup has objects of root `{root}`, which is not configured");
            Error::new(&code::INVALID_CONFIG, text).at("objects.roots")
        })?;
        let location = root.location(tenant, blob);
        Ok(SealedWriter { root: root.clone(), location, part: Vec::new(), length: 0, upload: None })
    }
}

/// Writes one sealed blob; it is in its place, durably, once [`SealedWriter::finish`] returns.
pub struct SealedWriter {
    root: Arc<Root>,
    location: object_store::path::Path,
    part: Vec<Bytes>,
    length: usize,
    upload: Option<Box<dyn MultipartUpload>>,
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
