//! A file as it was when it was opened.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use falaj_base::{Error, Result, code, hex};
use falaj_tables::{Blocks, Ranges, Source};

/// How much is hashed at a time.
const PIECE: u64 = 4 << 20;

/// A file that can be read, and that is noticed to have changed.
#[derive(Clone)]
pub struct File {
    name: String,
    size: u64,
    bytes: Where,
}

#[derive(Clone)]
enum Where {
    Disk {
        file: Arc<fs::File>,
        modified: SystemTime,
    },
    /// Each read of it fails once it is another.
    Elsewhere {
        blocks: Arc<Blocks>,
        hashes: Arc<Hashes>,
        version: String,
    },
}

/// How many hashes are remembered.
const REMEMBERED: usize = 100_000;

/// The hashes of versions of files that were read before: reading one again only to hash it would
/// fetch every byte of it twice.
#[derive(Debug, Default)]
pub(super) struct Hashes(Mutex<HashMap<String, String>>);

impl Hashes {
    fn get(&self, version: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(version).cloned()
    }

    fn put(&self, version: &str, hash: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(version.to_owned(), hash.to_owned());
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

impl File {
    /// A file on disk, under the name that people know it by.
    pub(crate) fn disk(name: String, file: fs::File) -> Result<Self> {
        let (size, modified) = seen(&file, &name)?;
        Ok(Self { name, size, bytes: Where::Disk { file: Arc::new(file), modified } })
    }

    /// One that is fetched in ranges. Reading must fail once it is not the version that it was; a
    /// version without a name is not remembered.
    pub(super) fn elsewhere(
        name: String,
        blocks: Blocks,
        hashes: Arc<Hashes>,
        version: String,
    ) -> Self {
        let size = blocks.size();
        Self { name, size, bytes: Where::Elsewhere { blocks: Arc::new(blocks), hashes, version } }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// For whoever reads Parquet.
    #[must_use]
    pub fn source(&self) -> Source {
        match &self.bytes {
            Where::Disk { file, .. } => Source::Disk(file.clone()),
            Where::Elsewhere { blocks, .. } => Source::Elsewhere(blocks.clone()),
        }
    }

    /// Why reading it through [`File::source`] failed, if that was no fault of its bytes.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        match &self.bytes {
            Where::Disk { .. } => None,
            Where::Elsewhere { blocks, .. } => blocks.failure(),
        }
    }

    /// Refuses a file that was written to since.
    pub fn unchanged(&self) -> Result<()> {
        let Where::Disk { file, modified } = &self.bytes else { return Ok(()) };
        if seen(file, &self.name)? == (self.size, *modified) {
            return Ok(());
        }
        Err(changed(&self.name))
    }

    /// Exactly so many bytes from a place on.
    pub fn read(&self, start: u64, length: u64) -> Result<Bytes> {
        if start.checked_add(length).is_none_or(|end| end > self.size) {
            let found = format!("{} bytes", self.size);
            let allowed = format!("{length} bytes from {start} on");
            return Err(Error::invalid(&self.name, found, allowed));
        }
        let length = usize::try_from(length).map_err(Error::internal)?;
        let read = match &self.bytes {
            Where::Disk { file, .. } => {
                use std::os::unix::fs::FileExt;
                let mut bytes = BytesMut::zeroed(length);
                file.read_exact_at(&mut bytes, start).map(|()| bytes.freeze())
            }
            Where::Elsewhere { blocks, .. } => blocks.read(start, length),
        };
        read.map_err(|error| match self.failure() {
            Some(why) => why,
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => changed(&self.name),
            None => unreadable(&self.name, error),
        })
    }

    /// All of it, if it is no longer than that.
    pub fn whole(&self, most: u64) -> Result<Bytes> {
        if self.size > most {
            let allowed = format!("at most {most}");
            return Err(Error::invalid(&self.name, format!("{} bytes", self.size), allowed));
        }
        self.read(0, self.size)
    }

    /// The SHA-256 of its bytes, in hex.
    pub fn sha256(&self) -> Result<String> {
        if let Where::Elsewhere { hashes, version, .. } = &self.bytes
            && let Some(known) = hashes.get(version)
        {
            return Ok(known);
        }
        let mut context = Context::new(&SHA256);
        let mut at = 0;
        while at < self.size {
            let length = PIECE.min(self.size - at);
            context.update(&self.read(at, length)?);
            at += length;
        }
        self.unchanged()?;
        let hash = hex(context.finish().as_ref());
        if let Where::Elsewhere { hashes, version, .. } = &self.bytes
            && !version.is_empty()
        {
            hashes.put(version, &hash);
        }
        Ok(hash)
    }
}

fn seen(file: &fs::File, name: &str) -> Result<(u64, SystemTime)> {
    let found = file.metadata().map_err(|error| unreadable(name, error))?;
    Ok((found.len(), found.modified().map_err(|error| unreadable(name, error))?))
}

pub(super) fn changed(name: &str) -> Error {
    let text = format!("the file `{name}` changed while it was read");
    Error::new(&code::CHANGED, text)
}

/// What the disk says is for the log: a caller learns the name that they gave.
pub(super) fn unreadable(name: &str, error: std::io::Error) -> Error {
    Error::invalid("path", name, "files that the server can read").caused_by(error)
}
