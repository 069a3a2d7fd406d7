//! The runs of a store: levels, the youngest first, each of runs whose keys do not overlap.
//!
//! Must hold: of two records of a key the one in the younger level is the later.

use std::sync::Arc;

use falaj_base::Result;

use super::record::Record;
use super::run::Run;
use crate::key::prefix;

/// Runs in the order of their keys.
#[derive(Debug)]
pub(super) struct Runs {
    runs: Box<[Arc<Run>]>,
    /// How the first key of each begins, as a number that sorts like it: side by side, so that the run
    /// of a key is found without a look at others.
    firsts: Box<[u128]>,
}

pub(super) type Level = Arc<Runs>;

impl FromIterator<Arc<Run>> for Runs {
    fn from_iter<T: IntoIterator<Item = Arc<Run>>>(runs: T) -> Self {
        let runs: Box<[_]> = runs.into_iter().collect();
        let firsts = runs.iter().map(|run| prefix(run.range().0)).collect();
        Self { runs, firsts }
    }
}

impl std::ops::Deref for Runs {
    type Target = [Arc<Run>];

    fn deref(&self) -> &[Arc<Run>] {
        &self.runs
    }
}

impl Runs {
    /// The run that has a key, if one does.
    fn of(&self, key: &[u8]) -> Option<&Run> {
        let begins = prefix(key);
        let alike = self.firsts.partition_point(|first| *first < begins);
        let behind = alike + self.firsts[alike..].partition_point(|first| *first == begins);
        // Of those that begin alike, the last that is not behind it.
        let behind = alike + self.runs[alike..behind].partition_point(|run| run.range().0 <= key);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        (key <= run.range().1).then_some(run)
    }
}

/// So many levels are not worth merging: each costs a read one look at its index.
const FEW: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Levels(pub(super) Vec<Level>);

/// Runs whose keys overlap, each with the number of its level.
pub(super) type Group = Vec<(usize, Arc<Run>)>;

impl Levels {
    /// The latest record of a key.
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Result<Option<Record<'_>>> {
        for level in &self.0 {
            if let Some(run) = level.of(key)
                && let Some(found) = run.get(hash, key)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether they have this run.
    pub(super) fn has(&self, number: u64) -> bool {
        self.runs().any(|run| run.number() == number)
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.0.iter().flat_map(|level| level.iter())
    }

    pub(super) fn numbers(&self) -> Vec<Vec<u64>> {
        let of = |level: &Level| level.iter().map(|run| run.number()).collect();
        self.0.iter().map(of).collect()
    }

    /// How many of the youngest levels are due to become one.
    pub(super) fn due(&self) -> Option<usize> {
        let size = |level: &Level| level.iter().map(|run| run.bytes()).sum();
        due(&self.0.iter().map(size).collect::<Vec<_>>())
    }

    /// These levels with another in front.
    pub(super) fn with(&self, level: Level) -> Self {
        Self(std::iter::once(level).chain(self.0.iter().cloned()).collect())
    }

    /// With one in the place of these, which stand somewhere in them; none if they do not.
    pub(super) fn replaced(&self, old: &[Level], new: Level) -> Option<Self> {
        let same =
            |some: &[Level]| some.iter().zip(old).all(|(one, other)| Arc::ptr_eq(one, other));
        let at = self.0.windows(old.len().max(1)).position(same)?;
        let mut levels = self.0.clone();
        let new = (!new.is_empty()).then_some(new);
        levels.splice(at..at + old.len(), new);
        Some(Self(levels))
    }
}

/// By the sizes of levels: as many of the youngest as are not much smaller than the next, so that a row
/// is written anew as often as its store has doubled, about.
fn due(sizes: &[u64]) -> Option<usize> {
    if sizes.len() <= FEW {
        return None;
    }
    let (mut count, mut together) = (2, sizes[0] + sizes[1]);
    while let Some(next) = sizes.get(count)
        && *next <= 2 * together
    {
        together += next;
        count += 1;
    }
    Some(count)
}

/// Runs of several levels in groups that do not overlap, in the order of their keys. A group of one run
/// can stay as it is.
pub(super) fn groups(levels: &[Level]) -> Vec<Group> {
    let all = levels.iter().enumerate();
    let all = all.flat_map(|(age, level)| level.iter().map(move |run| (age, run.clone())));
    let mut all: Vec<_> = all.collect();
    all.sort_by(|one, other| one.1.range().0.cmp(other.1.range().0));
    let mut groups: Vec<Group> = Vec::new();
    let mut end: Vec<u8> = Vec::new();
    for (age, run) in all {
        let (first, last) = run.range();
        let last = last.to_vec();
        match groups.last_mut() {
            Some(group) if first <= &end[..] => {
                group.push((age, run));
                end = end.max(last);
            }
            _ => {
                groups.push(vec![(age, run)]);
                end = last;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::folder::Folder;
    use super::super::make::Maker;
    use super::*;

    #[test]
    fn levels_of_like_size_become_one() {
        for (sizes, expected) in [
            (&[][..], None),
            (&[9, 9, 9, 9], None),
            (&[9, 9, 9, 9, 9], Some(5)),
            (&[9, 9, 9, 9, 300], Some(4)),
            (&[1, 100, 1000, 9000, 90_000], Some(2)),
            (&[1, 1, 4, 9, 90_000], Some(4)),
        ] {
            assert_eq!(due(sizes), expected, "{sizes:?}");
        }
    }

    /// Keys that differ early, late, and only in how long they are.
    #[test]
    fn the_run_of_a_key_is_found_whatever_keys_have_in_common() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        let long = |end: &str| [b"sixteen bytes of it, and more ", end.as_bytes()].concat();
        let mut keys = vec![b"a".to_vec(), b"b".to_vec(), b"b\0".to_vec(), b"zz".to_vec()];
        keys.extend(["a", "b", "c", "d", "e", "f"].map(long));
        keys.sort();
        let mut runs = Vec::new();
        for pair in keys.chunks(2) {
            let mut maker = Maker::new(&folder, 1);
            for key in pair {
                maker.add(Record { key, row: Some(key) }).unwrap();
            }
            runs.extend(maker.finish().unwrap().into_iter().map(|made| made.run));
        }
        let runs: Runs = runs.into_iter().collect();
        for (place, key) in keys.iter().enumerate() {
            let found = runs.of(key).unwrap();
            assert_eq!(found.number(), runs[place / 2].number(), "{key:?}");
        }
        for other in [&b""[..], b"zzz", &long("cc"), &long("ee")] {
            assert!(runs.of(other).is_none(), "{other:?}");
        }
    }

    /// Small files of like size, one after the other: a row is written anew no more often than the store
    /// has doubled.
    #[test]
    fn little_is_written_again_and_few_levels_stay() {
        let (mut sizes, mut written) = (Vec::new(), 0_u64);
        for _ in 0..1024 {
            sizes.insert(0, 32);
            while let Some(count) = due(&sizes) {
                let together: u64 = sizes.drain(..count).sum();
                written += together;
                sizes.insert(0, together);
            }
            assert!(sizes.len() <= FEW);
        }
        assert!(written < 1024 * 32 * 10, "{written}");
    }
}
