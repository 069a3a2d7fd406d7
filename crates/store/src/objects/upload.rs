//! An upload: plaintext in, hashed and sealed as it arrives, durable before it is staged.
//!
//! Three things run at once: the next batch arrives while those before it are hashed on one thread,
//! and sealed and written on another. None waits for another until there is enough between them.

use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use bytes::Bytes;
use falaj_base::{BlobId, Error, KeyId, Name, Result, TenantId, code, hex};
use futures::{Stream, StreamExt};

use super::lane::{Hasher, Lane, Work};
use super::parts::Ledger;
use super::writer::BlobWriter;
use super::{INLINE, Objects, blob_name, row};
use crate::keys::TenantKey;
use crate::seal::{self, Buffer, HEADER_LEN, Layout, Sealer};

/// How often a long upload shows that it is alive.
const TOUCH_EVERY: Duration = Duration::from_mins(1);

/// What the caller says about the bytes it sends; both are checked if given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    pub size: Option<u64>,
    pub sha256: Option<[u8; 32]>,
}

/// Bytes that are durable but not visible: the next transaction attaches them, or the collector
/// removes them.
#[derive(Clone, Debug)]
pub struct Staged {
    pub blob: BlobId,
    pub size: u64,
    pub sha256: [u8; 32],
    pub zone: Name,
    pub(super) root: Name,
    pub(super) key: KeyId,
    pub(super) header: [u8; HEADER_LEN],
    /// The SHA-256, sealed.
    pub(super) digest: Vec<u8>,
    /// Equal for equal contents under the same key, and meaningless without it.
    pub(super) tag: [u8; 32],
}

impl Objects {
    /// Stores the bytes of `content` for a tenant in a zone.
    pub async fn upload<S>(
        &self,
        tenant: TenantId,
        zone: &Name,
        content: S,
        expected: Expected,
    ) -> Result<Staged>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        self.check_zone(zone)?;
        let limit = self.0.config.max_object.bytes().min(Layout::MAX_PLAINTEXT);
        if expected.size.is_some_and(|size| size > limit) {
            return Err(too_large(limit));
        }
        let root = self.root_in(zone)?.clone();
        let key = self.0.keys.current(tenant, zone).await?;
        let (blob, root_name, key_id) = (BlobId::new(), root.name.clone(), key.id);
        let pending = move |tx: &mut crate::db::Tx<'_>| {
            row::insert_pending(tx, blob, tenant, &root_name, key_id)
        };
        self.0.db.write(pending).await?;

        let (ledger, location) =
            (Ledger::Row(self.0.db.clone(), blob), root.location(tenant, blob));
        let in_flight = self.0.config.parts_in_flight;
        let writer = BlobWriter::new(&root, location, ledger, expected.size, in_flight);
        let (batch, sends) = (root.batch(), writer.sends());
        let transfer =
            Transfer { objects: self, tenant, blob, key: &key, limit, batch, sends, expected };
        match transfer.run(content, writer).await {
            Ok(staged) => Ok(staged),
            Err(error) => {
                self.discard(blob).await;
                Err(error)
            }
        }
    }

    /// Keeps an upload that is not attached yet from being taken for one that failed: to be called
    /// more often than `objects.upload_grace`.
    pub async fn keep(&self, blob: BlobId) -> Result<()> {
        self.0.db.write(move |tx| row::touch(tx, blob)).await
    }

    /// Gives up an upload at once rather than after its grace period. If that fails too, the
    /// grace period does it.
    pub async fn discard(&self, blob: BlobId) {
        if let Err(error) = self.0.db.write(move |tx| row::doom_staged(tx, blob)).await {
            let error = error.chain();
            tracing::warn!(%blob, error, "a failed upload stays until its grace period ends");
        }
    }
}

/// The work of one upload.
struct Transfer<'a> {
    objects: &'a Objects,
    tenant: TenantId,
    blob: BlobId,
    key: &'a TenantKey,
    limit: u64,
    /// How much plaintext is hashed, sealed and written in one go.
    batch: usize,
    /// Whether what was sealed is sent somewhere between batches, rather than written to a file.
    sends: bool,
    expected: Expected,
}

impl Transfer<'_> {
    async fn run<S>(&self, content: S, writer: BlobWriter) -> Result<Staged>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        let name = blob_name(self.tenant, self.blob);
        let sealer = Sealer::new(&self.key.key, &name)?;
        let header = sealer.header();
        let mut pressing = Lane::new(Press { sealer, writer, sealed: Buffer::default() });
        let mut hashing = Lane::new(Hasher::new());
        let mut content = std::pin::pin!(content);
        let (mut size, mut touched) = (0u64, Instant::now());
        loop {
            let batch = gather(&mut content, self.batch).await?;
            size += batch.iter().map(|piece| piece.len() as u64).sum::<u64>();
            if size > self.limit {
                return Err(too_large(self.limit));
            }
            if batch.is_empty() {
                let sha256 = hashing.finish().await?.finish()?;
                return self.close(sha256, pressing.finish().await?, header, size).await;
            }
            if self.sends {
                pressing = Lane::new(pressing.finish().await?.send().await?);
            }
            hashing.push(batch.clone()).await?;
            pressing.push(batch).await?;
            if touched.elapsed() > TOUCH_EVERY {
                self.touch().await?;
                touched = Instant::now();
            }
        }
    }

    async fn close(
        &self,
        sha256: [u8; 32],
        mut press: Press,
        header: [u8; HEADER_LEN],
        size: u64,
    ) -> Result<Staged> {
        self.check(size, &sha256)?;
        press.sealer.finish(&mut press.sealed)?;
        press.writer.finish(press.sealed).await?;
        // If the collector gave the upload up meanwhile, it must not leave bytes behind.
        if let Err(error) = self.touch().await {
            let root = self.objects.root_in(&self.key.zone)?;
            root.remove(&root.location(self.tenant, self.blob), None).await?;
            return Err(error);
        }
        let digest = seal::seal_small(&self.key.key, &blob_name(self.tenant, self.blob), &sha256)?;
        Ok(Staged {
            blob: self.blob,
            size,
            sha256,
            zone: self.key.zone.clone(),
            root: self.objects.root_in(&self.key.zone)?.name.clone(),
            key: self.key.id,
            header,
            digest,
            tag: content_tag(&self.key.key, &sha256)?,
        })
    }

    fn check(&self, size: u64, sha256: &[u8; 32]) -> Result<()> {
        if let Some(expected) = self.expected.size.filter(|expected| *expected != size) {
            let text = format!("{size} bytes arrived, but {expected} were announced");
            return Err(Error::new(&code::MALFORMED_BODY, text));
        }
        match &self.expected.sha256 {
            Some(expected) if expected != sha256 => {
                let (sent, found) = (hex(expected), hex(sha256));
                Err(Error::invalid("sha256", sent, format!("the digest of what arrived, {found}")))
            }
            _ => Ok(()),
        }
    }

    async fn touch(&self) -> Result<()> {
        let blob = self.blob;
        self.objects.0.db.write(move |tx| row::touch(tx, blob)).await
    }
}

/// What becomes of plaintext: sealed, then written.
struct Press {
    sealer: Sealer,
    writer: BlobWriter,
    /// Sealed and not yet written; the one buffer of an upload to a file.
    sealed: Buffer,
}

impl Press {
    /// Sends what was sealed to the store, if the blob does not go to a file.
    async fn send(mut self) -> Result<Self> {
        self.writer.send(&mut self.sealed).await?;
        Ok(self)
    }
}

impl Work for Press {
    fn take(&mut self, batch: &[Bytes]) -> Result<()> {
        batch.iter().try_for_each(|piece| self.sealer.push(piece, &mut self.sealed))?;
        // A small object is written once, with its last bytes.
        if self.sealed.len() > 2 * INLINE { self.writer.append(&mut self.sealed) } else { Ok(()) }
    }
}

/// Waits for a batch worth working on; empty at the end.
async fn gather<S>(content: &mut std::pin::Pin<&mut S>, enough: usize) -> Result<Vec<Bytes>>
where
    S: Stream<Item = Result<Bytes>> + Send,
{
    let (mut batch, mut len) = (Vec::new(), 0);
    while len < enough {
        match content.next().await {
            Some(piece) => {
                let piece = piece?;
                len += piece.len();
                if !piece.is_empty() {
                    batch.push(piece);
                }
            }
            None => break,
        }
    }
    Ok(batch)
}

fn content_tag(key: &seal::DataKey, sha256: &[u8; 32]) -> Result<[u8; 32]> {
    let secret = key.derive(b"", b"falaj content tag 1")?;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()), sha256);
    tag.as_ref().try_into().map_err(|_| Error::internal("HMAC-SHA-256 is 32 bytes long"))
}

fn too_large(limit: u64) -> Error {
    let text = format!("an object has at most {limit} bytes here: `objects.max_object`");
    Error::new(&code::TOO_LARGE, text)
}
