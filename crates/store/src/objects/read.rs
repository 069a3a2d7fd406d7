//! Reading a blob: whole, with its digest verified, or any range of it.
//!
//! The next chunks are fetched and opened while the last one is handed out, and hashed beside both.
//! Dropping the stream stops everything that is on its way.

use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use falaj_base::{ByteSize, Error, Result, TenantId, code};
use futures::Stream;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::task::AbortOnDropHandle;

use super::buffers::Buffers;
use super::failure::{file_error, missing, store_error};
use super::lane::{Hasher, Lane};
use super::root::Root;
use super::row::BlobRow;
use super::{INLINE, blob_name, open_digest};
use crate::seal::{DataKey, HEADER_LEN, Layout, SEGMENT_LEN, SegmentOpener};

/// How many chunks are fetched before they are asked for.
const AHEAD: usize = 2;

/// The plaintext of a blob, as it is read.
pub type BlobStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A blob opened for reading.
#[derive(Clone, Debug)]
pub struct Blob {
    size: u64,
    sha256: [u8; 32],
    /// How many segments are read at a time.
    chunk: u64,
    source: Arc<Source>,
}

#[derive(Debug)]
struct Source {
    root: Arc<Root>,
    location: Path,
    /// Where it lies in a root that has files, and the file once it is open.
    file: Option<(PathBuf, OnceLock<File>)>,
    layout: Layout,
    header: Vec<u8>,
    opener: SegmentOpener,
}

impl Blob {
    pub(super) fn new(
        chunk: ByteSize,
        root: Arc<Root>,
        tenant: TenantId,
        row: &BlobRow,
        key: &DataKey,
    ) -> Result<Self> {
        let layout = Layout::new(row.size).ok_or_else(|| damaged("a blob has no valid size"))?;
        let location = root.location(tenant, row.id);
        let source = Source {
            file: root.file(&location).map(|place| (place, OnceLock::new())),
            location,
            root,
            layout,
            header: row.header.clone(),
            opener: SegmentOpener::new(key, &blob_name(tenant, row.id), &row.header)?,
        };
        Ok(Self {
            size: row.size,
            sha256: open_digest(key, tenant, row)?,
            chunk: (chunk.bytes() / SEGMENT_LEN as u64).max(1),
            source: Arc::new(source),
        })
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    #[must_use]
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// The whole content. Its last piece comes only after the digest was found right.
    #[must_use]
    pub fn read(&self) -> BlobStream {
        let segments = 0..self.source.layout.segments();
        self.stream(segments, 0..self.size, Some((Lane::new(Hasher::new()), self.sha256)))
    }

    /// The bytes of `range`, which must lie within the content. Every segment is authenticated;
    /// the digest of the whole cannot be.
    pub fn read_range(&self, range: Range<u64>) -> Result<BlobStream> {
        if range.start > range.end || range.end > self.size {
            let shown = format!("{}..{}", range.start, range.end);
            return Err(Error::invalid("range", shown, format!("within 0..{}", self.size)));
        }
        if range.is_empty() {
            return Ok(Box::pin(futures::stream::empty()));
        }
        let layout = &self.source.layout;
        let segments = layout.segment_for(range.start)..layout.segment_for(range.end - 1) + 1;
        Ok(self.stream(segments, range, None))
    }

    fn stream(
        &self,
        segments: Range<u64>,
        range: Range<u64>,
        digest: Option<(Lane<Hasher>, [u8; 32])>,
    ) -> BlobStream {
        let first = self.source.layout.plaintext_range(segments.start).start;
        let mut reader = Reader {
            source: self.source.clone(),
            buffers: Buffers::default(),
            chunk: self.chunk,
            segments,
            skip: range.start - first,
            left: range.end - range.start,
            digest,
            ahead: VecDeque::new(),
        };
        reader.fetch_ahead();
        Box::pin(futures::stream::try_unfold(reader, |mut reader| async move {
            Ok(reader.next().await?.map(|piece| (piece, reader)))
        }))
    }
}

/// A read in progress.
struct Reader {
    source: Arc<Source>,
    buffers: Buffers,
    chunk: u64,
    /// The segments not yet asked for.
    segments: Range<u64>,
    /// Plaintext before the wanted range in the first segment, and how much is still wanted.
    skip: u64,
    left: u64,
    digest: Option<(Lane<Hasher>, [u8; 32])>,
    ahead: VecDeque<AbortOnDropHandle<Result<Bytes>>>,
}

impl Reader {
    fn fetch_ahead(&mut self) {
        while self.ahead.len() < AHEAD && !self.segments.is_empty() {
            let end = (self.segments.start + self.chunk).min(self.segments.end);
            let wanted = self.segments.start..end;
            self.segments.start = end;
            let task = self.source.clone().fetch(wanted, self.buffers.clone());
            self.ahead.push_back(AbortOnDropHandle::new(task));
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(ahead) = self.ahead.pop_front() {
            let piece = ahead.await.map_err(Error::internal)??;
            self.fetch_ahead();
            if let Some((hashing, _)) = &mut self.digest {
                hashing.push(vec![piece.clone()]).await?;
            }
            if self.ahead.is_empty()
                && let Some((hashing, expected)) = self.digest.take()
                && hashing.finish().await?.finish()? != expected
            {
                return Err(damaged("the content does not have the digest it was stored with"));
            }
            let piece = self.trim(piece);
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    fn trim(&mut self, mut piece: Bytes) -> Bytes {
        let len = |bytes: u64, most: usize| usize::try_from(bytes).unwrap_or(most).min(most);
        let skip = len(self.skip, piece.len());
        self.skip -= skip as u64;
        let mut piece = piece.split_off(skip);
        piece.truncate(len(self.left, piece.len()));
        self.left -= piece.len() as u64;
        piece
    }
}

impl Source {
    /// Reads some segments and opens them.
    fn fetch(self: Arc<Self>, segments: Range<u64>, buffers: Buffers) -> JoinHandle<Result<Bytes>> {
        if self.file.is_some() {
            return spawn_blocking(move || self.fetch_from_file(segments, &buffers));
        }
        tokio::spawn(async move {
            let sealed = self.fetch_from_store(&segments).await?;
            if sealed.len() <= INLINE {
                return self.open(segments, &sealed, &buffers);
            }
            let opened = spawn_blocking(move || self.open(segments, &sealed, &buffers)).await;
            opened.map_err(Error::internal)?
        })
    }

    /// Where some segments lie. The header is read with the first one, to be compared with the one
    /// in the row.
    fn range(&self, segments: &Range<u64>) -> Range<u64> {
        let first = self.layout.sealed_range(segments.start);
        let start = if segments.start == 0 { 0 } else { first.start };
        start..self.layout.sealed_range(segments.end - 1).end
    }

    async fn fetch_from_store(&self, segments: &Range<u64>) -> Result<Bytes> {
        let range = self.range(segments);
        let len = range.end - range.start;
        match self.root.store.get_range(&self.location, range).await {
            Ok(sealed) if sealed.len() as u64 == len => Ok(sealed),
            Ok(_) => Err(damaged("the stored bytes are cut short")),
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// Reads and opens on one thread, while the sealed bytes are in its cache.
    fn fetch_from_file(&self, segments: Range<u64>, buffers: &Buffers) -> Result<Bytes> {
        let range = self.range(&segments);
        let len = usize::try_from(range.end - range.start).map_err(Error::internal)?;
        let mut sealed = buffers.take();
        let read = self.open_file()?.read_exact_at(sealed.grow(len), range.start);
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => damaged("the stored bytes are cut short"),
            _ => file_error(error),
        })?;
        let opened = self.open(segments, &sealed, buffers);
        buffers.give_back(sealed);
        opened
    }

    fn open_file(&self) -> Result<&File> {
        let (place, file) =
            self.file.as_ref().ok_or_else(|| Error::internal("a root without files"))?;
        if let Some(file) = file.get() {
            return Ok(file);
        }
        let opened = File::open(place).map_err(|error| match error.kind() {
            ErrorKind::NotFound => missing(error),
            _ => file_error(error),
        })?;
        Ok(file.get_or_init(|| opened))
    }

    /// Tells a store that fails from bytes that are not all there: stores have no common error
    /// for a range beyond the end.
    async fn failed(&self, error: object_store::Error) -> Error {
        match self.root.store.head(&self.location).await {
            Ok(found) if found.size != self.layout.sealed_len() => {
                damaged("the stored bytes are cut short").caused_by(error)
            }
            _ => store_error(error),
        }
    }

    /// Opens the segments into one piece.
    fn open(&self, segments: Range<u64>, sealed: &[u8], buffers: &Buffers) -> Result<Bytes> {
        let mut at = 0;
        if segments.start == 0 {
            if sealed.get(..HEADER_LEN) != Some(self.header.as_slice()) {
                return Err(damaged("the stored bytes have another header"));
            }
            at = HEADER_LEN;
        }
        let mut plain = buffers.take();
        for segment in segments {
            let range = self.layout.sealed_range(segment);
            let len = usize::try_from(range.end - range.start).map_err(Error::internal)?;
            let last = self.layout.is_last(segment);
            self.opener.open(segment, last, &sealed[at..at + len], &mut plain)?;
            at += len;
        }
        Ok(buffers.lend(plain))
    }
}

fn damaged(text: &str) -> Error {
    Error::new(&code::INTEGRITY, text)
}
