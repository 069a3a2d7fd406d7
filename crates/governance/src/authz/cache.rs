//! A bounded map that forgets what was not asked for lately.
//!
//! Two generations: what is found in the old one moves to the young one, and when the young one is
//! full it becomes the old one. It never holds more than its limit, and needs no clock and no list.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    generations: Mutex<Generations<K, V>>,
    per_generation: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// Holds at most `limit` entries; 0 switches it off.
    pub(super) fn new(limit: usize) -> Self {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Self { generations: Mutex::new(generations), per_generation: limit / 2 }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut generations = self.lock();
        if let Some(value) = generations.young.get(key) {
            return Some(value.clone());
        }
        let value = generations.old.remove(key)?;
        self.put(&mut generations, key.clone(), value.clone());
        Some(value)
    }

    pub(super) fn insert(&self, key: K, value: V) {
        self.put(&mut self.lock(), key, value);
    }

    fn put(&self, generations: &mut Generations<K, V>, key: K, value: V) {
        if self.per_generation == 0 {
            return;
        }
        if generations.young.len() >= self.per_generation {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(key, value);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let generations = self.lock();
        generations.young.len() + generations.old.len()
    }

    /// A panic while the lock was held cannot have left a half-written map behind.
    fn lock(&self) -> MutexGuard<'_, Generations<K, V>> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_outgrows_its_limit_and_keeps_what_is_used() {
        let cache = Cache::new(100);
        cache.insert(0, 0);
        for key in 1..10_000 {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(0), "used all the time, so kept");
            assert!(cache.len() <= 100);
        }
        assert_eq!(cache.get(&1), None);
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        let cache = Cache::new(0);
        cache.insert(1, 1);
        assert_eq!(cache.get(&1), None);
    }
}
