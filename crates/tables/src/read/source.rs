//! Where a file's bytes are.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::Error;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

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

/// How much of a file on disk: whoever reads on there wants the few bytes of a page's header.
const HEADER: usize = 512;
/// Up to so many bytes are read without a look at how many there are.
const SMALL: usize = 1 << 20;

/// Reads on in a file. What others read of it does not matter: it has a place of its own.
struct OnDisk {
    file: Arc<File>,
    at: u64,
}

impl Read for OnDisk {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(to, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// So many bytes of a file, or as many as there are.
fn read_at(file: &File, start: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = start + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // There may be room for more than was asked for.
    bytes.truncate(length);
    Ok(bytes.into())
}

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
            Self::Disk(file) => {
                let from = OnDisk { file: file.clone(), at: start };
                Box::new(BufReader::with_capacity(HEADER, from))
            }
            Self::Elsewhere(of) => {
                Box::new(Onward { of: of.clone(), at: start, read: Bytes::new() })
            }
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let gone = || ParquetError::EOF(format!("{length} bytes at {start} are not there"));
        let end = start.checked_add(length as u64).ok_or_else(gone)?;
        // A length that a file only claims must not decide on a large allocation.
        let is_tried = matches!(self, Self::Disk(_)) && length <= SMALL;
        if !is_tried && end > Length::len(self) {
            return Err(gone());
        }
        match self {
            Self::Memory(bytes) => bytes.get_bytes(start, length),
            Self::Disk(file) => {
                let bytes = read_at(file, start, length)?;
                if bytes.len() == length { Ok(bytes) } else { Err(gone()) }
            }
            Self::Elsewhere(of) => Ok(of.read(start, length)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_on_disk_reads_as_one_in_memory() {
        let whole: Bytes = (0..3 << 20).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        let (disk, memory) = (Source::from(file), Source::from(whole.clone()));
        let size = whole.len() as u64;
        for (start, length) in [
            (0, 0),
            (0, 1),
            (5, SMALL),
            (7, 2 * SMALL + 3),
            (size - 1, 1),
            (size, 0),
            (size - 1, 2),
            (size, 1),
            (0, whole.len() + 1),
            (u64::MAX, 2),
        ] {
            let read = |source: &Source| source.get_bytes(start, length).ok();
            assert_eq!(read(&disk), read(&memory), "{length} bytes at {start}");
        }
        // Two who read on at once do not get into each other's way.
        let (mut one, mut other) = (disk.get_read(10).unwrap(), disk.get_read(2000).unwrap());
        let (mut first, mut second) = ([0; 700], [0; 700]);
        for at in [0, 700] {
            one.read_exact(&mut first).unwrap();
            other.read_exact(&mut second).unwrap();
            assert_eq!(first[..], whole[10 + at..][..700]);
            assert_eq!(second[..], whole[2000 + at..][..700]);
        }
    }
}
