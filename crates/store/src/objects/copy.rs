//! Blobs as they lie in their roots, sealed: for backup and restore, which need no key for them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use falaj_base::{BlobId, Error, Name, Result, TenantId, code};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::ObjectStoreExt;
use tokio::task::spawn_blocking;

use super::Objects;
use super::config::ObjectsConfig;
use super::failure::store_error;
use super::parts::Ledger;
use super::root::Root;
use super::writer::BlobWriter;
use crate::seal::Buffer;

/// How much is gathered before it is written.
const GATHER: usize = 1 << 20;
/// How many parts of one blob may be on their way at once.
const PARTS_IN_FLIGHT: usize = 2;

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
        let writer = BlobWriter::new(root, location.clone(), Ledger::None, None, PARTS_IN_FLIGHT);
        Ok(SealedWriter {
            writer,
            gathered: Buffer::default(),
            root: root.clone(),
            blob: (tenant, blob),
            location,
            made: self.made.clone(),
        })
    }
}

/// Writes one sealed blob; it is in its place, durably, once [`SealedWriter::finish`] returns.
#[derive(Debug)]
pub struct SealedWriter {
    writer: BlobWriter,
    gathered: Buffer,
    root: Arc<Root>,
    blob: (TenantId, BlobId),
    location: object_store::path::Path,
    made: Made,
}

impl SealedWriter {
    /// Takes more sealed bytes and gives the writer back.
    pub async fn write(mut self, piece: &[u8]) -> Result<Self> {
        self.gathered.extend_from_slice(piece);
        if self.gathered.len() < GATHER {
            return Ok(self);
        }
        self.writer.send(&mut self.gathered).await?;
        if self.gathered.is_empty() {
            return Ok(self);
        }
        let append = move || self.writer.append(&mut self.gathered).map(|()| self);
        spawn_blocking(append).await.map_err(Error::internal)?
    }

    pub async fn finish(self) -> Result<()> {
        let there = self.root.store.head(&self.location).await.is_ok();
        self.writer.finish(self.gathered).await?;
        if !there {
            let (tenant, blob) = self.blob;
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.push((self.root, tenant, blob));
        }
        Ok(())
    }
}
