//! Credentials that were found good, for a short time.
//!
//! Must hold: nothing read before a change is given out after it. Entries carry the epoch that
//! was current before the database was read, and one moved epoch makes them all worthless.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use falaj_base::{Principal, SessionId, Timestamp};

use super::config::CacheConfig;

/// A credential's fingerprint.
pub(super) type Key = [u8; 32];

/// Whom a credential stands for.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub principal: Arc<Principal>,
    /// The browser session it came with, whose use is to be noted.
    pub session: Option<SessionId>,
}

struct Entry {
    found: Found,
    until: Timestamp,
}

#[derive(Default)]
struct Table {
    epoch: u64,
    entries: HashMap<Key, Entry>,
}

/// A bounded table of principals by the credential that proved them.
pub(super) struct PrincipalCache {
    config: CacheConfig,
    table: Mutex<Table>,
}

impl fmt::Debug for PrincipalCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrincipalCache").field("config", &self.config).finish_non_exhaustive()
    }
}

impl PrincipalCache {
    #[must_use]
    pub(super) fn new(config: CacheConfig) -> Self {
        Self { config, table: Mutex::default() }
    }

    #[must_use]
    pub(super) fn get(&self, key: &Key, epoch: u64, now: Timestamp) -> Option<Found> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.epoch != epoch {
            return None;
        }
        table.entries.get(key).filter(|entry| now < entry.until).map(|entry| entry.found.clone())
    }

    /// Remembers a principal read under `epoch`, at most until its credential ends at `end`.
    pub(super) fn put(&self, key: Key, epoch: u64, found: Found, now: Timestamp, end: Timestamp) {
        if self.config.entries == 0 {
            return;
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch < table.epoch {
            return;
        }
        if epoch > table.epoch {
            table.entries.clear();
            table.epoch = epoch;
        }
        if table.entries.len() >= self.config.entries && !table.entries.contains_key(&key) {
            table.entries.retain(|_, entry| now < entry.until);
            // Still full of live ones: start over. Refilling costs each credential one lookup,
            // which is cheaper than keeping an order on every request.
            if table.entries.len() >= self.config.entries {
                table.entries.clear();
            }
        }
        let until = end.min(now + self.config.life.get());
        table.entries.insert(key, Entry { found, until });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use falaj_base::HumanDuration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(0);
    const LATER: Timestamp = Timestamp::from_micros(i64::MAX);

    fn cache(entries: usize) -> PrincipalCache {
        PrincipalCache::new(CacheConfig { entries, life: HumanDuration::from_mins(1) })
    }

    fn someone() -> Found {
        Found { principal: Arc::new(Principal::system("test")), session: None }
    }

    #[test]
    fn an_entry_dies_with_its_epoch_its_age_and_its_credential() {
        let cache = cache(10);
        cache.put([1; 32], 5, someone(), NOW, LATER);
        cache.put([2; 32], 5, someone(), NOW, NOW + Duration::from_secs(2));
        assert!(cache.get(&[1; 32], 5, NOW).is_some());
        assert!(cache.get(&[1; 32], 6, NOW).is_none());
        assert!(cache.get(&[1; 32], 5, NOW + Duration::from_mins(1)).is_none());
        assert!(cache.get(&[2; 32], 5, NOW + Duration::from_secs(1)).is_some());
        assert!(cache.get(&[2; 32], 5, NOW + Duration::from_secs(2)).is_none());
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let cache = cache(10);
        cache.put([1; 32], 6, someone(), NOW, LATER);
        cache.put([2; 32], 5, someone(), NOW, LATER);
        assert!(cache.get(&[2; 32], 5, NOW).is_none());
        assert!(cache.get(&[2; 32], 6, NOW).is_none());
        assert!(cache.get(&[1; 32], 6, NOW).is_some());
    }

    #[test]
    fn the_cache_never_outgrows_its_limit() {
        let cache = cache(8);
        for n in 0..100 {
            cache.put([n; 32], 1, someone(), NOW, LATER);
            assert!(cache.table.lock().unwrap().entries.len() <= 8);
        }
    }
}
