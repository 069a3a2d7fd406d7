//! A file of rows in the order of their keys, which is written once and never changed.
//!
//! ```text
//! head      64 bytes: what it is
//! records   see `record.rs`
//! marks     where every 256th record begins, in units of 8 bytes; 4 bytes each
//! index     see `index.rs`
//! foot      64 bytes: how long each part is, and a hash of that
//! ```
//! Numbers are little end first.
//!
//! The file is mapped into memory: a row that the kernel has in its cache of files is found without
//! asking it, and what is in that cache is the kernel's to keep and to let go. So a read costs the same
//! however many rows there are, and memory of ours is taken by none of them.
//!
//! Must hold: bytes that are no run lead to an error, never further. Frozen in a test.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use falaj_base::{Error, Result, code};
use memmap2::{Advice, Mmap};
use xxhash_rust::xxh3::xxh3_64;

use super::folder::{damaged, failed};
use super::index::Shape;
use super::record::{HEAD as RECORD, Lengths, Record, UNIT};

/// What a file begins with.
pub(super) const HEAD: [u8; 64] =
    *b"falaj: the latest values of features, in the order of keys, v1\0\n";
pub(super) const FOOT: usize = 64;
/// Of how many records one can be sought.
pub(super) const MARKED: usize = 256;

/// How long the parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foot {
    /// Where the records end.
    pub(super) end: u64,
    pub(super) records: u64,
    /// Where the last of them begins.
    pub(super) last: u64,
    pub(super) shape: Shape,
    /// What its keys are hashed with.
    pub(super) seed: u64,
}

impl Foot {
    pub(super) fn bytes(self) -> [u8; FOOT] {
        let mut bytes = [0; FOOT];
        let shape = u64::from(self.shape.tables) | u64::from(self.shape.slots) << 32;
        let numbers = [self.end, self.records, self.last, shape, self.seed];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..FOOT - 8]);
        bytes[FOOT - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; FOOT]) -> Option<Self> {
        let number = |place: usize| {
            bytes[place * 8..].first_chunk().map_or(0, |some| u64::from_le_bytes(*some))
        };
        let [tables, slots] = [number(3) & 0xffff_ffff, number(3) >> 32];
        let shape =
            Shape { tables: u32::try_from(tables).ok()?, slots: u32::try_from(slots).ok()? };
        let whole = number(7) == xxh3_64(&bytes[..FOOT - 8]);
        whole.then(|| Self {
            end: number(0),
            records: number(1),
            last: number(2),
            shape,
            seed: number(4),
        })
    }

    fn marks(self) -> usize {
        size(self.records).div_ceil(MARKED)
    }

    /// How long the file is.
    fn whole(self) -> Option<usize> {
        let parts = [self.marks().checked_mul(4)?, self.shape.bytes(), FOOT];
        parts.into_iter().try_fold(size(self.end), usize::checked_add)
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A run that is open.
#[derive(Debug)]
pub(super) struct Run {
    number: u64,
    path: PathBuf,
    map: Mmap,
    foot: Foot,
    first: Box<[u8]>,
    last: Box<[u8]>,
}

impl Run {
    /// Opens a run of a store whose keys are hashed with this.
    pub(super) fn open(number: u64, path: PathBuf, seed: u64) -> Result<Self> {
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(damaged(&path).caused_by(error));
            }
            opened => opened.map_err(failed)?,
        };
        let map = mapped(&file).map_err(failed)?;
        // Neighbours of a row are not asked for next. Nothing is lost where this is not heard.
        drop(map.advise(Advice::Random));
        let foot = map.last_chunk().and_then(Foot::read).filter(|foot| {
            let whole = foot.whole() == Some(map.len()) && foot.seed == seed;
            whole && foot.records > 0 && map.starts_with(&HEAD)
        });
        let wrong = || damaged(&path);
        let foot = foot.ok_or_else(wrong)?;
        let key = |at: usize| -> Option<Box<[u8]>> {
            let (record, _) = Record::read(map.get(at..size(foot.end))?)?;
            Some(record.key.into())
        };
        let (first, last) = (key(HEAD.len()), key(size(foot.last)));
        let (Some(first), Some(last)) = (first, last) else { return Err(wrong()) };
        Ok(Self { number, path, map, foot, first, last })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The first key and the last.
    pub(super) fn range(&self) -> (&[u8], &[u8]) {
        (&self.first, &self.last)
    }

    /// How much the records take.
    pub(super) fn bytes(&self) -> u64 {
        self.foot.end
    }

    #[cfg(test)]
    pub(super) fn records(&self) -> u64 {
        self.foot.records
    }

    fn at(&self, place: usize) -> Option<(Record<'_>, usize)> {
        Record::read(self.map.get(place..size(self.foot.end))?)
    }

    fn unlike(&self) -> Error {
        damaged(&self.path)
    }

    /// The record of a key.
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Result<Option<Record<'_>>> {
        let start = size(self.foot.end) + self.foot.marks() * 4;
        let index = self.map.get(start..).unwrap_or_default();
        for place in self.foot.shape.find(index, hash) {
            let (record, _) = self.at(place as usize * UNIT).ok_or_else(|| self.unlike())?;
            if record.key == key {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The records from the first on whose key is not before this one.
    pub(super) fn from<'a>(
        &'a self,
        key: &'a [u8],
    ) -> impl Iterator<Item = Result<Record<'a>>> + 'a {
        let mut place = self.mark_before(key);
        let records = std::iter::from_fn(move || {
            if place >= size(self.foot.end) {
                return None;
            }
            let Some((record, taken)) = self.at(place) else {
                place = usize::MAX;
                return Some(Err(self.unlike()));
            };
            place += taken;
            Some(Ok(record))
        });
        records.skip_while(move |record| record.as_ref().is_ok_and(|record| record.key < key))
    }

    /// Where the last marked record begins that is before this key.
    fn mark_before(&self, key: &[u8]) -> usize {
        let marks = self.map.get(size(self.foot.end)..).unwrap_or_default();
        let mark = |number: usize| {
            let place = marks.get(number * 4..)?.first_chunk()?;
            Some(u32::from_le_bytes(*place) as usize * UNIT)
        };
        let (mut low, mut high) = (0, self.foot.marks());
        while low < high {
            let middle = low.midpoint(high);
            let before = mark(middle).and_then(|place| self.at(place));
            if before.is_some_and(|(record, _)| record.key < key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).and_then(mark).unwrap_or(HEAD.len())
    }

    /// The records one after the other, from the file: to map all of it would look as if it were
    /// memory of ours.
    pub(super) fn stream(&self) -> Result<Stream> {
        let file = File::open(&self.path).map_err(failed)?;
        let mut from = BufReader::with_capacity(1 << 20, file);
        from.read_exact(&mut [0; HEAD.len()]).map_err(failed)?;
        let left = self.foot.end.saturating_sub(HEAD.len() as u64);
        Ok(Stream { from, path: self.path.clone(), left, bytes: Vec::new(), lengths: None })
    }
}

#[allow(unsafe_code, reason = "a file is mapped, which is safe for as long as nobody changes it")]
fn mapped(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: runs are written before they are mapped, and neither written nor cut short afterwards;
    // the folder is locked, so no other server does it. What stands in a run is checked wherever it is
    // looked at.
    unsafe { Mmap::map(file) }
}

/// The records of a run in their order.
#[derive(Debug)]
pub(super) struct Stream {
    from: BufReader<File>,
    path: PathBuf,
    /// Bytes of records that were not read yet.
    left: u64,
    bytes: Vec<u8>,
    lengths: Option<Lengths>,
}

impl Stream {
    /// Goes on to the next; says whether there is one.
    pub(super) fn next(&mut self) -> Result<bool> {
        self.lengths = None;
        if self.left == 0 {
            return Ok(false);
        }
        let mut head = [0; RECORD];
        self.from.read_exact(&mut head).map_err(failed)?;
        let lengths = Lengths::read(head);
        let whole = lengths.whole();
        self.left = self.left.checked_sub(whole as u64).ok_or_else(|| damaged(&self.path))?;
        self.bytes.resize(whole - RECORD, 0);
        self.from.read_exact(&mut self.bytes).map_err(failed)?;
        self.lengths = Some(lengths);
        Ok(true)
    }

    /// The record it is at.
    pub(super) fn record(&self) -> Option<Record<'_>> {
        let lengths = self.lengths?;
        let (key, rest) = self.bytes.split_at_checked(lengths.key)?;
        let row = match lengths.row {
            Some(length) => Some(rest.get(..length)?),
            None => None,
        };
        Some(Record { key, row })
    }
}

/// Refused: more than a file can have.
#[cold]
pub(super) fn too_large(path: &Path) -> Error {
    let text = format!("the file {} of the online store would be over 32 GiB", path.display());
    Error::new(&code::TOO_LARGE, text)
}
