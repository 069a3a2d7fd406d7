//! Where a file's bytes are.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// A file on disk or in memory. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Source {
    Memory(Bytes),
    Disk(Arc<File>),
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

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(file) => Length::len(file.as_ref()),
        }
    }
}

impl ChunkReader for Source {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(bytes.get_read(start)?),
            Self::Disk(file) => Box::new(file.get_read(start)?),
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
        }
    }
}
