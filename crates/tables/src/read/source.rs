//! Where a file's bytes are.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::Error;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes that are fetched when they are needed.
pub trait Ranges: fmt::Debug + Send + Sync {
    fn size(&self) -> u64;
    /// Exactly so many bytes from a place on; both lie within the size.
    fn read(&self, start: u64, length: usize) -> io::Result<Bytes>;
    /// Why reading failed, told once; none if it did not, or the bytes were there. The libraries that
    /// read formats only pass on that something is wrong with the file.
    fn failure(&self) -> Option<Error> {
        None
    }
}

/// A file on disk, in memory or elsewhere. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Source {
    Memory(Bytes),
    Disk(Arc<File>),
    Elsewhere(Arc<dyn Ranges>),
}

/// How much is fetched at a time for whoever reads on from a place.
const STEP: u64 = 64 << 10;

/// Reads on from a place.
struct Onward {
    of: Arc<dyn Ranges>,
    at: u64,
    read: Bytes,
}

impl Read for Onward {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.read.is_empty() {
            let length = STEP.min(self.of.size().saturating_sub(self.at));
            // At most a step, which every platform can count.
            self.read = self.of.read(self.at, usize::try_from(length).unwrap_or(0))?;
            self.at += length;
        }
        let count = to.len().min(self.read.len());
        to[..count].copy_from_slice(&self.read.split_to(count));
        Ok(count)
    }
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::Disk(Arc::new(file))
    }
}

impl From<Arc<dyn Ranges>> for Source {
    fn from(of: Arc<dyn Ranges>) -> Self {
        Self::Elsewhere(of)
    }
}

impl Source {
    /// What is wrong with a file, unless its bytes could not be had: then why.
    pub(super) fn blamed(&self, error: Error) -> Error {
        match self {
            Self::Elsewhere(of) => of.failure().unwrap_or(error),
            Self::Memory(_) | Self::Disk(_) => error,
        }
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(file) => Length::len(file.as_ref()),
            Self::Elsewhere(of) => of.size(),
        }
    }
}

impl ChunkReader for Source {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(bytes.get_read(start)?),
            Self::Disk(file) => Box::new(file.get_read(start)?),
            Self::Elsewhere(of) => {
                Box::new(Onward { of: of.clone(), at: start, read: Bytes::new() })
            }
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // A length that a file only claims must not decide on an allocation.
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > Length::len(self)) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are not there")));
        }
        match self {
            Self::Memory(bytes) => bytes.get_bytes(start, length),
            Self::Disk(file) => file.get_bytes(start, length),
            Self::Elsewhere(of) => Ok(of.read(start, length)?),
        }
    }
}
