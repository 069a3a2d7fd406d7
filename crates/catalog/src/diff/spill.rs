//! Records in order, more of them than memory holds: sorted runs in a file, merged when read.
//!
//! Records are digests under a key that is made for one comparison and then forgotten, so the file
//! tells nothing. It has no name from the moment it is opened: a crash leaves none behind.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use falaj_base::{Error, Result, code};
use uuid::Uuid;

/// A digest of a key or of a row.
pub(super) type Mark = [u8; 16];

/// One row of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) key: Mark,
    pub(super) row: Mark,
    /// Whether it is of the newer version.
    pub(super) newer: bool,
}

const SIZE: usize = 33;
/// Bytes that are written, or read of a run, at a time.
const PIECE: usize = SIZE * 8192;

impl Record {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.key);
        to.extend(self.row);
        to.push(u8::from(self.newer));
    }

    fn read(bytes: &[u8]) -> Self {
        let (mut key, mut row) = ([0; 16], [0; 16]);
        key.copy_from_slice(&bytes[..16]);
        row.copy_from_slice(&bytes[16..32]);
        Self { key, row, newer: bytes[32] != 0 }
    }
}

/// Gathers records.
#[derive(Debug)]
pub(super) struct Sorter {
    folder: PathBuf,
    /// Records in memory at most, and bytes in the file.
    room: usize,
    most: u64,
    memory: Vec<Record>,
    file: Option<File>,
    /// Where runs end in the file.
    ends: Vec<u64>,
}

impl Sorter {
    pub(super) fn new(folder: PathBuf, memory: usize, most: u64) -> Self {
        let room = (memory / size_of::<Record>()).max(1);
        Self { folder, room, most, memory: Vec::new(), file: None, ends: Vec::new() }
    }

    pub(super) fn push(&mut self, record: Record) -> Result<()> {
        if self.memory.len() >= self.room {
            self.spill()?;
        }
        self.memory.push(record);
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.memory.sort_unstable();
        let start = self.ends.last().copied().unwrap_or_default();
        let end = start + (self.memory.len() * SIZE) as u64;
        if end > self.most {
            let text = format!(
                "the comparison takes more than {} bytes on disk (`datasets.diff_spill`)",
                self.most
            );
            return Err(Error::new(&code::TOO_LARGE, text));
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => nameless(&self.folder)?,
        };
        let (mut at, mut piece) = (start, Vec::with_capacity(PIECE + SIZE));
        for record in &self.memory {
            record.write(&mut piece);
            if piece.len() >= PIECE {
                file.write_all_at(&piece, at).map_err(full)?;
                at += piece.len() as u64;
                piece.clear();
            }
        }
        file.write_all_at(&piece, at).map_err(full)?;
        self.file = Some(file);
        self.ends.push(end);
        self.memory.clear();
        Ok(())
    }

    /// All records in order.
    pub(super) fn sorted(mut self) -> Result<Sorted> {
        self.memory.sort_unstable();
        let mut runs = Vec::new();
        let mut start = 0;
        for end in &self.ends {
            runs.push(Run { at: start, end: *end, piece: Vec::new(), place: 0 });
            start = *end;
        }
        let mut sorted = Sorted {
            memory: self.memory.into_iter(),
            file: self.file,
            runs,
            next: BinaryHeap::new(),
        };
        for place in 0..sorted.runs.len() {
            sorted.refill(Some(place))?;
        }
        sorted.refill(None)?;
        Ok(sorted)
    }
}

#[derive(Debug)]
struct Run {
    at: u64,
    end: u64,
    piece: Vec<u8>,
    place: usize,
}

/// Records of all runs and of memory, in order.
#[derive(Debug)]
pub(super) struct Sorted {
    memory: std::vec::IntoIter<Record>,
    file: Option<File>,
    runs: Vec<Run>,
    /// The next record of each run, and of memory.
    next: BinaryHeap<Reverse<(Record, Option<usize>)>>,
}

impl Sorted {
    pub(super) fn next(&mut self) -> Result<Option<Record>> {
        let Some(Reverse((record, of))) = self.next.pop() else { return Ok(None) };
        self.refill(of)?;
        Ok(Some(record))
    }

    fn refill(&mut self, of: Option<usize>) -> Result<()> {
        let record = match (of, &self.file) {
            (Some(place), Some(file)) => self.runs[place].next(file)?,
            _ => self.memory.next(),
        };
        self.next.extend(record.map(|record| Reverse((record, of))));
        Ok(())
    }
}

impl Run {
    fn next(&mut self, file: &File) -> Result<Option<Record>> {
        if self.place == self.piece.len() {
            let length = (self.end - self.at).min(PIECE as u64);
            if length == 0 {
                return Ok(None);
            }
            self.piece.resize(usize::try_from(length).unwrap_or(PIECE), 0);
            file.read_exact_at(&mut self.piece, self.at).map_err(Error::internal)?;
            (self.at, self.place) = (self.at + length, 0);
        }
        let record = Record::read(&self.piece[self.place..self.place + SIZE]);
        self.place += SIZE;
        Ok(Some(record))
    }
}

fn nameless(folder: &std::path::Path) -> Result<File> {
    let place = folder.join(format!("diff-{}.tmp", Uuid::now_v7().simple()));
    let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&place);
    let file = opened.map_err(Error::internal)?;
    std::fs::remove_file(&place).map_err(Error::internal)?;
    Ok(file)
}

fn full(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return Error::new(&code::STORAGE_FULL, "the disk is full").caused_by(error);
    }
    Error::internal(error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(number: u8) -> Record {
        Record { key: [number % 7; 16], row: [number; 16], newer: number.is_multiple_of(2) }
    }

    proptest! {
        #[test]
        fn all_come_out_in_order_whatever_fits_into_memory(
            numbers in prop::collection::vec(any::<u8>(), 0..300), room in 1_usize..40,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let memory = room * size_of::<Record>();
            let mut sorter = Sorter::new(folder.path().to_owned(), memory, 1 << 20);
            for number in &numbers {
                sorter.push(record(*number)).unwrap();
            }
            let (mut sorted, mut found) = (sorter.sorted().unwrap(), Vec::new());
            while let Some(record) = sorted.next().unwrap() {
                found.push(record);
            }
            let mut expected: Vec<_> = numbers.iter().copied().map(record).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn the_file_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path().to_owned(), 1, 100);
        let error = (0..10).find_map(|number| sorter.push(record(number)).err()).unwrap();
        assert_eq!(error.code(), &code::TOO_LARGE);
    }
}
