//! When tokens and sessions were last used: noted in memory, written in batches. A use is never
//! worth a write of its own, and forgetting some when the server dies is harmless.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use falaj_base::Timestamp;

/// Uses not yet written.
#[derive(Debug)]
pub(super) struct Uses<K> {
    limit: usize,
    pending: Mutex<HashMap<K, Timestamp>>,
}

impl<K: Copy + Eq + Hash + Ord> Uses<K> {
    #[must_use]
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, pending: Mutex::default() }
    }

    pub(super) fn note(&self, key: K, at: Timestamp) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < self.limit || pending.contains_key(&key) {
            pending.insert(key, at);
        }
    }

    /// Takes what has been noted, always in the same order, so that two servers that write at the
    /// same time do not wait for each other's rows in a circle.
    #[must_use]
    pub(super) fn take(&self) -> Vec<(K, Timestamp)> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut uses: Vec<_> = std::mem::take(&mut *pending).into_iter().collect();
        uses.sort_unstable();
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_is_bounded_and_known_keys_stay_current() {
        let uses = Uses::new(2);
        for (key, at) in [(7, 1), (3, 2), (5, 3), (7, 9)] {
            uses.note(key, Timestamp::from_micros(at));
        }
        let taken: Vec<_> = uses.take().into_iter().map(|(key, at)| (key, at.micros())).collect();
        assert_eq!(taken, [(3, 2), (7, 9)]);
        assert!(uses.take().is_empty());
    }
}
