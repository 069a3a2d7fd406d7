//! A file as it was when it was opened.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blake3::Hasher;
use bytes::{Bytes, BytesMut};
use falaj_base::{Error, Result, code};
use falaj_tables::{Blocks, Ranges, Source};

/// How much is hashed at a time of what is fetched from elsewhere.
const PIECE: u64 = 4 << 20;
/// The same of what is on disk.
const NEAR: usize = 256 << 10;

/// A file that can be read, and that is noticed to have changed.
#[derive(Clone)]
pub struct File {
    name: String,
    size: u64,
    bytes: Where,
    /// Where its hash is remembered, and as what; none if it cannot be told from what it was before.
    known: Option<(Hashes, String)>,
}

#[derive(Clone)]
enum Where {
    Disk {
        file: Arc<fs::File>,
        /// When it was written, and when anything about it was changed.
        modified: Stamp,
    },
    /// Each read of it fails once it is another.
    Elsewhere(Arc<Blocks>),
}

/// How many hashes are remembered.
const REMEMBERED: usize = 100_000;
/// A file of the disk that was changed less than this ago may be changed again within the same tick of the
/// clock that stamps it.
const STILL: Duration = Duration::from_secs(2);

/// The hashes of versions of files that were read before: to read one again only to hash it takes as long
/// as to read what is wanted of it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Hashes(Arc<Mutex<HashMap<String, String>>>);

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
    pub(super) fn disk(name: String, file: fs::File, hashes: &Hashes) -> Result<Self> {
        let about = about(&file, &name)?;
        let (size, modified) = seen(&about);
        let known = version_on_disk(&about).map(|version| (hashes.clone(), version));
        Ok(Self { name, size, bytes: Where::Disk { file: Arc::new(file), modified }, known })
    }

    /// One that is fetched in ranges. Reading must fail once it is not the version that it was; a
    /// version without a name is not remembered.
    pub(super) fn elsewhere(
        name: String,
        blocks: Blocks,
        hashes: &Hashes,
        version: String,
    ) -> Self {
        let size = blocks.size();
        let known = (!version.is_empty()).then(|| (hashes.clone(), version));
        Self { name, size, bytes: Where::Elsewhere(Arc::new(blocks)), known }
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
            Where::Elsewhere(blocks) => Source::Elsewhere(blocks.clone()),
        }
    }

    /// Why reading it through [`File::source`] failed, if that was no fault of its bytes.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        match &self.bytes {
            Where::Disk { .. } => None,
            Where::Elsewhere(blocks) => blocks.failure(),
        }
    }

    /// Refuses a file that was written to since.
    pub fn unchanged(&self) -> Result<()> {
        let Where::Disk { file, modified } = &self.bytes else { return Ok(()) };
        if seen(&about(file, &self.name)?) == (self.size, *modified) {
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
                let mut bytes = BytesMut::zeroed(length);
                file.read_exact_at(&mut bytes, start).map(|()| bytes.freeze())
            }
            Where::Elsewhere(blocks) => blocks.read(start, length),
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

    /// The BLAKE3 of its bytes, in hex: what `b3sum` says. SHA-256 takes three times as long, which was a
    /// fifth of what a join takes that reads gigabytes for the first time.
    pub fn blake3(&self) -> Result<String> {
        let known = self.known.as_ref();
        if let Some(hash) = known.and_then(|(hashes, version)| hashes.get(version)) {
            self.unchanged()?;
            return Ok(hash);
        }
        let mut hasher = Hasher::new();
        match &self.bytes {
            Where::Disk { file, .. } => self.hash_on_disk(file, &mut hasher)?,
            Where::Elsewhere(_) => self.hash_elsewhere(&mut hasher)?,
        }
        self.unchanged()?;
        let hash = hasher.finalize().to_hex().to_string();
        if let Some((hashes, version)) = known {
            hashes.put(version, &hash);
        }
        Ok(hash)
    }

    /// Into the same memory over and over, which stays near the processor.
    fn hash_on_disk(&self, file: &fs::File, hasher: &mut Hasher) -> Result<()> {
        let (mut near, mut at) = (vec![0; NEAR], 0);
        while at < self.size {
            let most = usize::try_from(self.size - at).map_or(NEAR, |left| left.min(NEAR));
            let read = file.read_at(&mut near[..most], at);
            let count = read.map_err(|error| unreadable(&self.name, error))?;
            if count == 0 {
                return Err(changed(&self.name));
            }
            hasher.update(&near[..count]);
            at += count as u64;
        }
        Ok(())
    }

    fn hash_elsewhere(&self, hasher: &mut Hasher) -> Result<()> {
        let mut at = 0;
        while at < self.size {
            let length = PIECE.min(self.size - at);
            hasher.update(&self.read(at, length)?);
            at += length;
        }
        Ok(())
    }
}

/// What tells a file of the disk from any other, and from itself before it was changed: nobody can set the
/// time of its last change but by changing it. None for one that was changed just now.
fn version_on_disk(about: &fs::Metadata) -> Option<String> {
    let (seconds, nanos) = (about.ctime().try_into().ok()?, about.ctime_nsec().try_into().ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ago = now.checked_sub(Duration::new(seconds, nanos))?;
    let (device, inode, (size, stamp)) = (about.dev(), about.ino(), seen(about));
    (ago > STILL).then(|| format!("{device}/{inode}/{size}/{stamp:?}"))
}

fn about(file: &fs::File, name: &str) -> Result<fs::Metadata> {
    file.metadata().map_err(|error| unreadable(name, error))
}

/// Seconds and nanoseconds of both times.
type Stamp = [(i64, i64); 2];

fn seen(about: &fs::Metadata) -> (u64, Stamp) {
    let stamp = [(about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec())];
    (about.len(), stamp)
}

pub(super) fn changed(name: &str) -> Error {
    let text = format!("the file `{name}` changed while it was read");
    Error::new(&code::CHANGED, text)
}

/// What the disk says is for the log: a caller learns the name that they gave.
pub(super) fn unreadable(name: &str, error: std::io::Error) -> Error {
    Error::invalid("path", name, "files that the server can read").caused_by(error)
}
