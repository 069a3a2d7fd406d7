//! A blob as a file that is read here and there: sealed as it lies, opened piece by piece, and never
//! on a disk in the clear.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use falaj_store::objects::Blob;
use falaj_tables::Ranges;
use futures::TryStreamExt;
use tokio::runtime::Handle;

/// How much is opened at a time where little is asked for.
const BLOCK: u64 = 1 << 20;
/// How many such blocks are remembered.
const REMEMBERED: usize = 16;

/// Reads a blob from threads that may block.
#[derive(Debug)]
pub struct BlobRanges {
    blob: Blob,
    runtime: Handle,
    blocks: Mutex<VecDeque<(u64, Bytes)>>,
}

impl BlobRanges {
    /// Must be called on the runtime; the reading must not be.
    #[must_use]
    pub fn new(blob: Blob) -> Self {
        Self { blob, runtime: Handle::current(), blocks: Mutex::default() }
    }

    fn fetch(&self, start: u64, length: u64) -> io::Result<Bytes> {
        let read = async {
            let mut pieces = self.blob.read_range(start..start + length)?;
            let mut whole = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
            while let Some(piece) = pieces.try_next().await? {
                whole.extend_from_slice(&piece);
            }
            Ok::<_, falaj_base::Error>(whole.freeze())
        };
        self.runtime.block_on(read).map_err(io::Error::other)
    }

    fn block(&self, number: u64) -> io::Result<Bytes> {
        let lock = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = lock().iter().find(|(of, _)| *of == number) {
            return Ok(known.clone());
        }
        let start = number * BLOCK;
        let block = self.fetch(start, BLOCK.min(self.blob.size() - start))?;
        let mut blocks = lock();
        if blocks.len() >= REMEMBERED {
            blocks.pop_front();
        }
        blocks.push_back((number, block.clone()));
        Ok(block)
    }
}

impl Ranges for BlobRanges {
    fn size(&self) -> u64 {
        self.blob.size()
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let end = start + length as u64;
        if length == 0 {
            return Ok(Bytes::new());
        }
        if length as u64 >= 2 * BLOCK {
            return self.fetch(start, length as u64);
        }
        let mut whole = BytesMut::with_capacity(length);
        for number in start / BLOCK..=(end - 1) / BLOCK {
            let block = self.block(number)?;
            let first = number * BLOCK;
            // Both lie within a block, which any platform can count.
            let from = usize::try_from(start.saturating_sub(first)).unwrap_or(0);
            let to = usize::try_from((end - first).min(BLOCK)).unwrap_or(0);
            let piece = block.get(from..to).ok_or(io::ErrorKind::UnexpectedEof)?;
            whole.extend_from_slice(piece);
        }
        Ok(whole.freeze())
    }
}

/// Reads on, from the beginning to the end.
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
            let length = BLOCK.min(self.of.size() - self.at);
            self.piece = self.of.read(self.at, usize::try_from(length).unwrap_or(0))?;
            self.at += length;
        }
        let count = to.len().min(self.piece.len());
        to[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
