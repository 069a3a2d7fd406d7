//! What was applied after all runs: records, one frame after the other, each with the position in the
//! log that it reaches.
//!
//! ```text
//! length         8 bytes: of what follows the sum
//! sum            8 bytes: a hash of it
//! position      16 bytes
//! records
//! ```
//! Numbers are little end first.
//!
//! Must hold: a frame that was not written whole is not there, and neither is what stands behind it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use falaj_base::Result;
use xxhash_rust::xxh3::xxh3_64;

use super::folder::{Folder, failed};
use super::record::Record;
use crate::store::Position;

const HEAD: usize = 16;
const POSITION: usize = 16;
/// How long a tail is that has reached a position and has no records.
pub(super) const BARE: u64 = (HEAD + POSITION) as u64;

/// The tail of a store, to be written on.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) number: u64,
    file: File,
    /// How far it is written.
    pub(super) length: u64,
}

/// What stands in a tail.
pub(super) struct Found {
    pub(super) tail: Tail,
    /// Of the last frame.
    pub(super) position: Option<Position>,
    bytes: Vec<u8>,
}

impl Tail {
    pub(super) fn create(folder: &Folder) -> Result<Self> {
        let number = folder.number();
        let file = File::options().write(true).create_new(true).open(folder.tail(number));
        Ok(Self { number, file: file.map_err(failed)?, length: 0 })
    }

    /// Opens a tail; one that is not there is told as such.
    pub(super) fn open(folder: &Folder, number: u64) -> std::io::Result<Found> {
        let path = folder.tail(number);
        let mut bytes = fs::read(&path)?;
        let (mut length, mut position) = (0, None);
        while let Some((reached, whole)) = frame(&bytes[length..]) {
            length += whole;
            position = Some(reached);
        }
        bytes.truncate(length);
        let file = File::options().write(true).open(path)?;
        // What was written in part would stand before what is written next.
        file.set_len(length as u64)?;
        Ok(Found { tail: Self { number, file, length: length as u64 }, position, bytes })
    }

    /// Adds records, which then last together with the position.
    pub(super) fn add(&mut self, records: &[u8], position: Position) -> Result<()> {
        let length = POSITION + records.len();
        let mut bytes = Vec::with_capacity(HEAD + length);
        bytes.extend_from_slice(&(length as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&position.tx.to_le_bytes());
        bytes.extend_from_slice(&position.seq.to_le_bytes());
        bytes.extend_from_slice(records);
        let sum = xxh3_64(&bytes[HEAD..]);
        bytes[8..HEAD].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&bytes, self.length).map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// The position of the whole frame that begins here, and how long it is.
fn frame(bytes: &[u8]) -> Option<(Position, usize)> {
    let number = |at: usize| bytes.get(at..)?.first_chunk().map(|some| u64::from_le_bytes(*some));
    let length = usize::try_from(number(0)?).ok()?;
    let body = bytes.get(HEAD..HEAD.checked_add(length)?)?;
    let position = Position { tx: number(16)?.cast_signed(), seq: number(24)?.cast_signed() };
    (length >= POSITION && number(8)? == xxh3_64(body)).then_some((position, HEAD + length))
}

impl Found {
    /// The records in the order they were applied in.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut frames = &self.bytes[..];
        let mut records: &[u8] = &[];
        std::iter::from_fn(move || {
            while records.is_empty() {
                let (_, whole) = frame(frames)?;
                records = &frames[HEAD + POSITION..whole];
                frames = &frames[whole..];
            }
            let (record, taken) = Record::read(records)?;
            records = &records[taken..];
            Some(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        let mut tail = Tail::create(&folder).unwrap();
        let at = |seq| Position { tx: 1, seq };
        for seq in 0..3 {
            let mut records = Vec::new();
            for number in 0..seq {
                let (key, row) = ([number], [7; 9]);
                Record { key: &key, row: (number != 1).then_some(&row) }
                    .write(&mut records)
                    .unwrap();
            }
            tail.add(&records, at(i64::from(seq))).unwrap();
        }
        let (number, whole) = (tail.number, fs::read(folder.tail(tail.number)).unwrap());
        let ends = [32, 32 + 32 + 24, 32 + 32 + 24 + 32 + 24 + 16];
        assert_eq!(whole.len(), ends[2]);
        // Tails outlive the process, too.
        assert_eq!(xxh3_64(&whole), 4_445_693_252_366_697_599);
        for length in 0..=whole.len() {
            fs::write(folder.tail(number), &whole[..length]).unwrap();
            let found = Tail::open(&folder, number).unwrap();
            let last = ends.iter().rposition(|end| *end <= length);
            assert_eq!(found.position, last.map(|last| at(i64::try_from(last).unwrap())));
            let count = [0, 1, 3];
            assert_eq!(found.records().count(), last.map_or(0, |last| count[last]), "{length}");
        }
        // A frame that was changed, and what is written over what was not whole.
        let mut wrong = whole.clone();
        wrong[ends[0] + 20] ^= 1;
        fs::write(folder.tail(number), &wrong).unwrap();
        let mut found = Tail::open(&folder, number).unwrap();
        assert_eq!(found.position, Some(at(0)));
        found.tail.add(&[], at(9)).unwrap();
        let found = Tail::open(&folder, number).unwrap();
        assert_eq!((found.position, found.records().count()), (Some(at(9)), 0));
    }
}
