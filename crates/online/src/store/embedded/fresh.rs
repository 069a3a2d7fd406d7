//! Rows that are in no run yet.
//!
//! Must hold: what was put here is found until it was forgotten, which is after the run that has it
//! can be read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::record::Record;

const SHARDS: usize = 16;
/// What an entry takes up beside its key and row, about.
const OVERHEAD: usize = 128;

#[derive(Debug)]
pub(super) struct Fresh {
    shards: Box<[RwLock<Shard>]>,
    /// How many there are: to look where nothing is would be most of what a read costs.
    count: AtomicUsize,
    bytes: AtomicUsize,
}

type Shard = HashTable<Fact>;

/// What is known of a key: its row, or that it has none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known(pub(super) Option<Bytes>);

#[derive(Debug)]
struct Fact {
    hash: u64,
    key: Box<[u8]>,
    row: Option<Bytes>,
}

impl Fact {
    fn weight(&self) -> usize {
        self.key.len() + self.row.as_ref().map_or(0, Bytes::len) + OVERHEAD
    }
}

fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Fresh {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, count: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }
}

impl Fresh {
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // The lowest bits and the highest choose places within a table.
        &self.shards[usize::try_from(hash >> 32).unwrap_or(0) % SHARDS]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// How much memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What is known of a key; nothing is what is most often known.
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<Known> {
        if self.is_empty() {
            return None;
        }
        let shard = read(self.shard(hash));
        shard.find(hash, |fact| *fact.key == *key).map(|fact| Known(fact.row.clone()))
    }

    /// Puts down what a key has now. Only the writer does.
    pub(super) fn put(&self, hash: u64, Record { key, row }: Record<'_>) {
        let row = row.map(Bytes::copy_from_slice);
        let fact = Fact { hash, key: key.into(), row };
        let weight = fact.weight();
        let mut shard = write(self.shard(hash));
        match shard.entry(hash, |fact| *fact.key == *key, |fact| fact.hash) {
            Entry::Occupied(mut there) => {
                let before = std::mem::replace(there.get_mut(), fact).weight();
                self.bytes.fetch_sub(before, Ordering::Relaxed);
            }
            Entry::Vacant(place) => {
                place.insert(fact);
                self.count.fetch_add(1, Ordering::Release);
            }
        }
        self.bytes.fetch_add(weight, Ordering::Relaxed);
    }

    /// Everything, in the order of keys: hash, key and row of each. Nobody puts anything down
    /// meanwhile.
    pub(super) fn in_order(&self) -> Vec<(u64, Box<[u8]>, Option<Bytes>)> {
        let mut all = Vec::with_capacity(self.count.load(Ordering::Relaxed));
        for shard in &self.shards {
            let shard = read(shard);
            all.extend(shard.iter().map(|it| (it.hash, it.key.clone(), it.row.clone())));
        }
        all.sort_unstable_by(|one, other| one.1.cmp(&other.1));
        all
    }

    /// The keys that begin so.
    pub(super) fn beginning_with(&self, beginning: &[u8]) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = read(shard);
            let keys = shard.iter().map(|fact| &fact.key);
            found.extend(keys.filter(|key| key.starts_with(beginning)).cloned());
        }
        found
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.count.store(0, Ordering::Release);
        for shard in &self.shards {
            let old = std::mem::take(&mut *write(shard));
            // Outside the lock: letting go of many rows takes a while.
            drop(old);
        }
        self.bytes.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_found_and_memory_is_counted() {
        let fresh = Fresh::default();
        assert!(fresh.is_empty() && fresh.get(1, b"a").is_none());
        fresh.put(1, Record { key: b"b", row: Some(b"one") });
        // Of the same hash, and another key.
        fresh.put(1, Record { key: b"a", row: Some(b"two") });
        assert_eq!(fresh.bytes(), 2 * (OVERHEAD + 4));
        fresh.put(1, Record { key: b"a", row: None });
        assert_eq!(fresh.bytes(), 2 * (OVERHEAD + 1) + 3);
        assert_eq!(fresh.get(1, b"b"), Some(Known(Some(Bytes::from_static(b"one")))));
        assert_eq!((fresh.get(1, b"a"), fresh.get(1, b"c")), (Some(Known(None)), None));
        let keys: Vec<_> = fresh.in_order().into_iter().map(|it| it.1).collect();
        assert_eq!(keys, [b"a"[..].into(), b"b"[..].into()]);
        assert_eq!(fresh.beginning_with(b"b"), [b"b"[..].into()]);
        fresh.clear();
        assert!(fresh.is_empty() && fresh.bytes() == 0 && fresh.get(1, b"a").is_none());
    }
}
