//! Writing runs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use falaj_base::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::folder::{Folder, failed};
use super::index;
use super::record::{Record, UNIT};
use super::run::{Foot, HEAD, MARKED, Run, too_large};

/// A run has no more rows than this, and is not much longer: what is remembered of each while it is
/// written takes memory, and what is merged is written anew as a whole.
const ROWS: usize = 2_000_000;
const BYTES: u64 = 256 << 20;

/// A run that was written, and the file that has to be made to last.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) run: Arc<Run>,
    pub(super) file: Arc<File>,
}

/// Writes records in the order of their keys, into as many runs as it takes.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    folder: &'a Folder,
    seed: u64,
    current: Option<Current>,
    made: Vec<Made>,
}

#[derive(Debug)]
struct Current {
    number: u64,
    out: BufWriter<File>,
    bytes: Vec<u8>,
    at: u64,
    last: u64,
    hashes: Vec<u64>,
    places: Vec<u32>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(folder: &'a Folder, seed: u64) -> Self {
        Self { folder, seed, current: None, made: Vec::new() }
    }

    /// Adds a record whose key is behind the one before.
    pub(super) fn add(&mut self, record: Record<'_>) -> Result<()> {
        let hash = xxh3_64_with_seed(record.key, self.seed);
        self.add_hashed(hash, record)
    }

    pub(super) fn add_hashed(&mut self, hash: u64, record: Record<'_>) -> Result<()> {
        let current = match &mut self.current {
            Some(current) => current,
            none => none.insert(Current::begin(self.folder)?),
        };
        current.add(self.folder, hash, record)?;
        if current.hashes.len() >= ROWS || current.at >= BYTES {
            self.end()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if let Some(current) = self.current.take() {
            self.made.push(current.end(self.folder, self.seed)?);
        }
        Ok(())
    }

    /// The runs, in the order of their keys; none if nothing was added.
    pub(super) fn finish(mut self) -> Result<Vec<Made>> {
        self.end()?;
        Ok(std::mem::take(&mut self.made))
    }
}

impl Drop for Maker<'_> {
    /// Removes what was not finished.
    fn drop(&mut self) {
        for made in &self.made {
            self.folder.remove_run(made.run.number());
        }
        if let Some(current) = &self.current {
            self.folder.remove_run(current.number);
        }
    }
}

impl Current {
    fn begin(folder: &Folder) -> Result<Self> {
        let number = folder.number();
        let path = folder.run(number);
        let file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&HEAD).map_err(failed)?;
        let (at, bytes) = (HEAD.len() as u64, Vec::new());
        Ok(Self { number, out, bytes, at, last: 0, hashes: Vec::new(), places: Vec::new() })
    }

    fn add(&mut self, folder: &Folder, hash: u64, record: Record<'_>) -> Result<()> {
        let place = u32::try_from(self.at / UNIT as u64);
        let place = place.map_err(|_| too_large(&folder.run(self.number)))?;
        self.bytes.clear();
        record.write(&mut self.bytes)?;
        self.out.write_all(&self.bytes).map_err(failed)?;
        self.last = self.at;
        self.at += self.bytes.len() as u64;
        self.hashes.push(hash);
        self.places.push(place);
        Ok(())
    }

    fn end(mut self, folder: &Folder, seed: u64) -> Result<Made> {
        let made = self.write_rest(seed).and_then(|()| {
            let file = self.out.into_inner().map_err(|error| failed(error.into_error()))?;
            let run = Run::open(self.number, folder.run(self.number), seed)?;
            Ok(Made { run: Arc::new(run), file: Arc::new(file) })
        });
        made.inspect_err(|_: &Error| folder.remove_run(self.number))
    }

    fn write_rest(&mut self, seed: u64) -> Result<()> {
        for place in self.places.iter().step_by(MARKED) {
            self.out.write_all(&place.to_le_bytes()).map_err(failed)?;
        }
        let (shape, index) = index::build(&self.hashes, &self.places);
        let records = self.hashes.len() as u64;
        let foot = Foot { end: self.at, records, last: self.last, shape, seed };
        self.out.write_all(&index).map_err(failed)?;
        self.out.write_all(&foot.bytes()).map_err(failed)?;
        self.out.flush().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn hash(key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, 3)
    }

    fn write(folder: &Folder, numbers: impl Iterator<Item = u32>) -> Vec<Made> {
        let mut maker = Maker::new(folder, 3);
        for number in numbers {
            let row = vec![7; number as usize % 50];
            let row = (number % 5 != 0).then_some(&row[..]);
            maker.add(Record { key: &key(number), row }).unwrap();
        }
        maker.finish().unwrap()
    }

    /// Runs outlive the process: the bytes of a small one, by their digest, and where its parts are.
    #[test]
    fn one_is_written_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        let made = write(&folder, 0..600);
        let bytes = std::fs::read(folder.run(made[0].run.number())).unwrap();
        assert_eq!(
            (bytes.len(), xxhash_rust::xxh3::xxh3_64(&bytes)),
            (26_498, 8_178_687_703_584_228_172)
        );
    }

    #[test]
    fn what_was_written_is_found_sought_and_streamed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        assert!(write(&folder, 0..0).is_empty());
        for count in [1, 2, 255, 256, 257, 3000] {
            let made = write(&folder, (0..count).map(|number| 2 * number));
            let run = &made[0].run;
            assert_eq!((made.len(), run.records()), (1, u64::from(count)));
            assert_eq!(run.range(), (&key(0)[..], &key(2 * count - 2)[..]));
            let mut stream = run.stream().unwrap();
            for number in 0..2 * count {
                let key = key(number);
                let found = run.get(hash(&key), &key).unwrap();
                assert_eq!(found.is_some(), number % 2 == 0, "{number} of {count}");
                if let Some(found) = found {
                    let length = (number % 5 != 0).then_some(number as usize % 50);
                    assert_eq!(found.row.map(<[u8]>::len), length);
                    assert!(stream.next().unwrap());
                    assert_eq!(stream.record(), Some(found));
                }
                let mut on = run.from(&key);
                let next = on.next().map(|record| record.unwrap().key.to_vec());
                let expected = number.next_multiple_of(2);
                let expected = (expected < 2 * count).then(|| expected.to_be_bytes().to_vec());
                assert_eq!(next, expected, "{number} of {count}");
            }
            assert!(!stream.next().unwrap() && stream.record().is_none());
        }
    }

    #[test]
    fn a_damaged_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        let made = write(&folder, 0..1000);
        let (number, path) = (made[0].run.number(), folder.run(made[0].run.number()));
        drop(made);
        let whole = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8], seed| {
            // Another file: what is mapped is not written.
            let path = path.with_extension("other");
            drop(std::fs::remove_file(&path));
            std::fs::write(&path, bytes).unwrap();
            Run::open(number, path, seed)
        };
        assert!(open(&whole, 3).is_ok());
        let mut wrong = whole.clone();
        wrong[whole.len() - 30] ^= 1;
        let cut = &whole[..whole.len() - 1];
        for (bytes, seed) in [(&whole[..], 4), (&wrong, 3), (cut, 3), (&whole[8..], 3), (b"x", 3)] {
            let error = open(bytes, seed).unwrap_err();
            assert!(error.message().contains("damaged"), "{error:?}");
        }
        // Whatever stands in the records, nothing but an error comes of it.
        for at in (64..whole.len() - 64).step_by(7) {
            let mut wrong = whole.clone();
            wrong[at..at + 4].fill(0xff);
            let Ok(run) = open(&wrong, 3) else { continue };
            for number in 0..1000 {
                let key = key(number);
                let _ = run.get(hash(&key), &key);
            }
            let _ = run.from(&key(500)).take(2000).count();
        }
    }

    #[test]
    fn what_is_not_finished_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        let mut maker = Maker::new(&folder, 3);
        maker.add(Record { key: &key(1), row: None }).unwrap();
        assert!(folder.has_rows().unwrap());
        drop(maker);
        assert!(!folder.has_rows().unwrap());
    }
}
