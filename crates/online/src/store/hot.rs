//! Rows in memory that were read not long ago, more than once.
//!
//! A row is kept when it is asked for again: where every row is asked for once, copying them here would
//! be half of what a read costs, and in vain.
//!
//! Each shard has two maps: what is found goes into the younger, and when that is full it becomes
//! the older and what was the older is forgotten. So a row that is asked for stays, one that is not
//! goes after a while, and memory is bounded, at the cost of a flag or a list for each row.
//!
//! Must hold: no row is found here once one that takes its place was applied. A reader remembers
//! the shard's [`Age`] before it looks into the B-tree and brings its row along with that; a row
//! that has aged meanwhile is not taken.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashMap};

const SHARDS: usize = 16;
/// Bits that remember what was asked for, for each row that there may be room for. With a quarter of
/// them set too many rows would be taken for others, and they begin anew.
const MARKS_OF_A_ROW: usize = 4;
/// What a row takes up, about.
const ROW: usize = 256;
/// What an entry takes up beside its key and row.
const OVERHEAD: usize = 96;

#[derive(Debug)]
pub(super) struct Hot {
    hasher: DefaultHashBuilder,
    shards: Box<[RwLock<Shard>]>,
    asked: Asked,
    /// The most bytes of one map.
    limit: usize,
}

/// How often a shard was told of applied rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(u64);

/// What was asked for and not found, about: a bit for each key, which others may share.
#[derive(Debug)]
struct Asked {
    /// A power of two of them.
    marks: Box<[AtomicU64]>,
    marked: AtomicUsize,
}

impl Asked {
    /// For a memory of this size.
    fn new(bytes: usize) -> Self {
        let marks = (bytes / ROW * MARKS_OF_A_ROW / 64).next_power_of_two();
        let marks = (0..marks).map(|_| AtomicU64::new(0)).collect();
        Self { marks, marked: AtomicUsize::new(0) }
    }

    /// How many are remembered at a time.
    fn most(&self) -> usize {
        self.marks.len() * 64 / MARKS_OF_A_ROW
    }

    /// Whether it was asked for before; from now on it was.
    fn before(&self, hash: u64) -> bool {
        let place = usize::try_from(hash >> 6).unwrap_or(0) & (self.marks.len() - 1);
        let bit = 1 << (hash % 64);
        if self.marks[place].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return true;
        }
        if self.marked.fetch_add(1, Ordering::Relaxed) >= self.most() {
            self.marked.store(0, Ordering::Relaxed);
            self.marks.iter().for_each(|marks| marks.store(0, Ordering::Relaxed));
        }
        false
    }
}

type Map = HashMap<Box<[u8]>, Bytes>;

#[derive(Debug, Default)]
struct Shard {
    young: Map,
    old: Map,
    /// Of the younger map.
    bytes: usize,
    age: u64,
}

fn weight(key: &[u8], row: &[u8]) -> usize {
    key.len() + row.len() + OVERHEAD
}

impl Hot {
    /// Keeps at most this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        let (hasher, asked) = (DefaultHashBuilder::default(), Asked::new(bytes));
        Self { hasher, shards, asked, limit: bytes / SHARDS / 2 }
    }

    fn shard(&self, key: &[u8]) -> &RwLock<Shard> {
        // The lowest bits and the highest choose places within a map.
        let hash = self.hasher.hash_one(key) >> 32;
        &self.shards[usize::try_from(hash).unwrap_or(0) % SHARDS]
    }

    /// The row, or how old the shard is that does not have it.
    pub(super) fn get(&self, key: &[u8]) -> Result<Bytes, Age> {
        let place = self.shard(key);
        let shard = place.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = shard.young.get(key) {
            return Ok(row.clone());
        }
        let Some(row) = shard.old.get(key).cloned() else { return Err(Age(shard.age)) };
        let age = Age(shard.age);
        drop(shard);
        self.insert(key, &row, age);
        Ok(row)
    }

    /// Keeps a row that was read when the shard was of this age, if it was asked for before.
    pub(super) fn keep(&self, key: &[u8], row: &Bytes, age: Age) {
        if weight(key, row) <= self.limit && self.asked.before(self.hasher.hash_one(key)) {
            self.insert(key, row, age);
        }
    }

    fn insert(&self, key: &[u8], row: &Bytes, age: Age) {
        let weight = weight(key, row);
        let place = self.shard(key);
        let mut forgotten = Map::new();
        let mut shard = place.write().unwrap_or_else(PoisonError::into_inner);
        if shard.age != age.0 {
            return;
        }
        if shard.bytes + weight > self.limit {
            let young = std::mem::take(&mut shard.young);
            forgotten = std::mem::replace(&mut shard.old, young);
            shard.bytes = 0;
        }
        if shard.young.insert(key.into(), row.clone()).is_none() {
            shard.bytes += weight;
        }
        drop(shard);
        // Outside the lock: letting go of many rows takes a while.
        drop(forgotten);
    }

    /// Forgets rows, since others have taken their places.
    pub(super) fn forget_all<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) {
        if keys.len() < SHARDS {
            return keys.for_each(|key| self.forget(key));
        }
        // Of many, most are not here: what is on its way here is stopped in every shard at once.
        let mut empty = true;
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.age += 1;
            empty &= shard.young.is_empty() && shard.old.is_empty();
        }
        if !empty {
            keys.for_each(|key| self.forget(key));
        }
    }

    /// Forgets a row, since another has taken its place.
    pub(super) fn forget(&self, key: &[u8]) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        shard.age += 1;
        shard.old.remove(key);
        if let Some(row) = shard.young.remove(key) {
            shard.bytes -= weight(key, &row);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            *shard = Shard { age: shard.age + 1, ..Shard::default() };
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let all = |map: &Map| map.iter().map(|(key, row)| weight(key, row)).sum::<usize>();
        let one = |shard: &RwLock<Shard>| {
            let shard = shard.read().unwrap();
            assert_eq!(shard.bytes, all(&shard.young));
            all(&shard.young) + all(&shard.old)
        };
        self.shards.iter().map(one).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(of: u32) -> Bytes {
        Bytes::from(of.to_be_bytes().repeat(50))
    }

    /// Brings a row that was asked for before.
    fn keep(hot: &Hot, key: &[u8], row: &Bytes, age: Age) {
        hot.asked.before(hot.hasher.hash_one(key));
        hot.keep(key, row, age);
    }

    #[test]
    fn what_is_asked_for_once_is_not_kept() {
        let hot = Hot::new(1 << 20);
        for round in 0..3 {
            match hot.get(b"k") {
                Err(age) => hot.keep(b"k", &row(1), age),
                Ok(_) => assert_eq!(round, 2),
            }
        }
        assert!(hot.get(b"k").is_ok());
        let most = hot.asked.most();
        let kept = (0..most).filter(|number| {
            let key = number.to_be_bytes();
            hot.get(&key).is_err_and(|age| {
                hot.keep(&key, &row(2), age);
                hot.get(&key).is_ok()
            })
        });
        // Some share a bit with another.
        assert!(kept.count() < most / 4);
    }

    #[test]
    fn memory_is_bounded_and_what_is_asked_for_stays() {
        let hot = Hot::new(1 << 20);
        let asked = 7_u32.to_be_bytes();
        for number in 0..50_000_u32 {
            let key = number.to_be_bytes();
            if let Err(age) = hot.get(&key) {
                keep(&hot, &key, &row(number), age);
            }
            assert!(number < 7 || hot.get(&asked) == Ok(row(7)), "{number}");
        }
        let bytes = hot.bytes();
        assert!(bytes <= 1 << 20 && bytes > 1 << 18, "{bytes}");
        assert!(hot.get(&9_u32.to_be_bytes()).is_err(), "one that nobody asks for goes");
    }

    #[test]
    fn a_row_that_aged_on_its_way_is_not_taken() {
        let hot = Hot::new(1 << 20);
        let age = hot.get(b"k").unwrap_err();
        hot.forget(b"k");
        keep(&hot, b"k", &row(1), age);
        let age = hot.get(b"k").unwrap_err();
        keep(&hot, b"k", &row(2), age);
        assert_eq!(hot.get(b"k"), Ok(row(2)));
        hot.forget(b"k");
        assert!(hot.get(b"k").is_err());
    }

    #[test]
    fn of_many_none_stays_and_none_comes_late() {
        let hot = Hot::new(1 << 20);
        let keys: Vec<_> = (0..100_u32).map(u32::to_be_bytes).collect();
        let ages: Vec<_> = keys.iter().map(|key| hot.get(key).unwrap_err()).collect();
        for (key, age) in keys.iter().zip(&ages).take(50) {
            keep(&hot, key, &row(1), *age);
        }
        for few in [3, 100] {
            hot.forget_all(keys[..few].iter().map(|key| &key[..]));
            for (key, age) in keys[..few].iter().zip(&ages) {
                keep(&hot, key, &row(2), *age);
                assert!(hot.get(key).is_err());
            }
        }
        // Nothing was there, and yet what was on its way is not taken.
        let hot = Hot::new(1 << 20);
        let age = hot.get(&keys[0]).unwrap_err();
        hot.forget_all(keys.iter().map(|key| &key[..]));
        keep(&hot, &keys[0], &row(3), age);
        assert!(hot.get(&keys[0]).is_err());
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let hot = Hot::new(0);
        let age = hot.get(b"k").unwrap_err();
        keep(&hot, b"k", &row(1), age);
        assert!(hot.get(b"k").is_err());
    }
}
