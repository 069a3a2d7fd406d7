//! A blob as a file that is read here and there: sealed as it lies, opened piece by piece, and never
//! on a disk in the clear.

use std::io;

use bytes::{Bytes, BytesMut};
use falaj_base::Error;
use falaj_store::objects::Blob;
use falaj_tables::{Blocks, Ranges};
use futures::TryStreamExt;
use tokio::runtime::Handle;

/// How much is read on at a time.
const PIECE: u64 = 1 << 20;

/// Reads a blob from threads that may block.
#[derive(Debug)]
pub struct BlobRanges(Blocks);

impl BlobRanges {
    /// Must be called on the runtime; the reading must not be.
    #[must_use]
    pub fn new(blob: Blob) -> Self {
        let runtime = Handle::current();
        Self(Blocks::new(blob.size(), move |range| {
            let read = async {
                let length = usize::try_from(range.end - range.start).unwrap_or(0);
                let mut pieces = blob.read_range(range)?;
                let mut whole = BytesMut::with_capacity(length);
                while let Some(piece) = pieces.try_next().await? {
                    whole.extend_from_slice(&piece);
                }
                Ok::<_, Error>(whole.freeze())
            };
            runtime.block_on(read)
        }))
    }
}

impl Ranges for BlobRanges {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        self.0.read(start, length)
    }

    fn failure(&self) -> Option<Error> {
        self.0.failure()
    }
}

/// Reads on, from the beginning to the end. What fails says why.
#[derive(Debug)]
pub(crate) struct Onward {
    of: BlobRanges,
    at: u64,
    piece: Bytes,
}

impl Onward {
    pub(crate) fn new(of: BlobRanges) -> Self {
        Self { of, at: 0, piece: Bytes::new() }
    }
}

impl io::Read for Onward {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let length = PIECE.min(self.of.size() - self.at);
            let piece = self.of.read(self.at, usize::try_from(length).unwrap_or(0));
            self.piece =
                piece.map_err(|error| self.of.failure().map_or(error, io::Error::other))?;
            self.at += length;
        }
        let count = to.len().min(self.piece.len());
        to[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
