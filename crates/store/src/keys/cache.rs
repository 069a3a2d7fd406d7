//! Unwrapped keys, in memory for a bounded time.
//!
//! A key in use is unwrapped again in the background once half its time is over. So when the key
//! manager goes away, every key in use still has at least half its time left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falaj_base::{Clock, KeyId, Result, Timestamp};

use crate::seal::DataKey;

/// How long to leave the key manager alone after a background renewal failed.
const RENEW_PAUSE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    lifetime: Duration,
    capacity: usize,
    entries: Mutex<HashMap<KeyId, Entry>>,
    /// One unwrap per key at a time: the others wait for it instead of asking the manager too.
    turns: Mutex<HashMap<KeyId, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug)]
struct Entry {
    key: Arc<DataKey>,
    fetched: Timestamp,
    renew_at: Timestamp,
}

impl Cache {
    pub(super) fn new(clock: Clock, lifetime: Duration, capacity: usize) -> Self {
        Self(Arc::new(Inner {
            clock,
            lifetime,
            capacity: capacity.max(1),
            entries: Mutex::default(),
            turns: Mutex::default(),
        }))
    }

    /// The key from memory, or from `unwrap`.
    pub(super) async fn get<F, R>(&self, id: KeyId, unwrap: F) -> Result<Arc<DataKey>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = Result<DataKey>> + Send,
    {
        if let Some((key, renew)) = self.lookup(id) {
            if renew {
                self.renew(id, unwrap);
            }
            return Ok(key);
        }
        let turn = lock(&self.0.turns).entry(id).or_default().clone();
        let waited = turn.lock().await;
        let result = match self.lookup(id) {
            Some((key, _)) => Ok(key),
            None => unwrap().await.map(|key| self.insert(id, key)),
        };
        drop(waited);
        // Whoever comes now either finds the key or starts a turn of its own.
        lock(&self.0.turns).remove(&id);
        result
    }

    pub(super) fn forget(&self, id: KeyId) {
        lock(&self.0.entries).remove(&id);
    }

    /// The key if its time is not over, and whether the caller is to renew it.
    fn lookup(&self, id: KeyId) -> Option<(Arc<DataKey>, bool)> {
        let now = self.0.clock.now();
        let mut entries = lock(&self.0.entries);
        let entry = entries.get_mut(&id)?;
        // A clock set back must not lengthen a key's time.
        if now < entry.fetched || now.since(entry.fetched) >= self.0.lifetime {
            entries.remove(&id);
            return None;
        }
        let renew = now >= entry.renew_at;
        if renew {
            entry.renew_at = now + RENEW_PAUSE;
        }
        Some((entry.key.clone(), renew))
    }

    fn insert(&self, id: KeyId, key: DataKey) -> Arc<DataKey> {
        let (key, now) = (Arc::new(key), self.0.clock.now());
        let mut entries = lock(&self.0.entries);
        // Keys that nobody asks for any more go when another one comes.
        entries
            .retain(|_, entry| now >= entry.fetched && now.since(entry.fetched) < self.0.lifetime);
        if entries.len() >= self.0.capacity && !entries.contains_key(&id) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.fetched).map(|(id, _)| *id);
            oldest.map(|oldest| entries.remove(&oldest));
        }
        let renew_at = now + self.0.lifetime / 2;
        entries.insert(id, Entry { key: key.clone(), fetched: now, renew_at });
        key
    }

    fn renew<F, R>(&self, id: KeyId, unwrap: F)
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = Result<DataKey>> + Send,
    {
        let cache = self.clone();
        tokio::spawn(async move {
            match unwrap().await {
                // Forgotten in the meantime means destroyed: it must not come back.
                Ok(key) if lock(&cache.0.entries).contains_key(&id) => drop(cache.insert(id, key)),
                Ok(_) => {}
                Err(error) => {
                    let error = error.chain();
                    tracing::warn!(key = %id, error, "a key could not be unwrapped again");
                }
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
