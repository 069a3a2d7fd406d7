//! Whose turn it is to read files. Reading them is costly, and whoever may see a version can ask
//! for it: one at a time reads those of a version, and few at a time those of any. No tenant has
//! more than half of the places.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use falaj_base::TenantId;
use tokio::sync::{Mutex as Waiting, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::model::RegisteredId;

/// How long a request waits for its turn. What it waits for is mostly what it wants to know.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most digests that are remembered.
const MAX_DIGESTS: usize = 10_000;

/// A version: its model and number.
type Of = (RegisteredId, i64);

/// Who reads which files, and what was found in them.
#[derive(Debug)]
pub(crate) struct Turns {
    versions: Shared<Of, Waiting<()>>,
    places: Arc<Semaphore>,
    /// What each tenant has of them, and how many that are.
    shares: Shared<TenantId, Semaphore>,
    share: usize,
    patience: Duration,
    digests: Mutex<HashMap<String, String>>,
}

/// The right to read the files of a version, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _version: OwnedMutexGuard<()>,
    _places: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            versions: Shared::default(),
            places: Arc::new(Semaphore::new(at_once.max(1))),
            shares: Shared::default(),
            share: (at_once / 2).max(1),
            patience: PATIENCE,
            digests: Mutex::default(),
        }
    }

    /// Waits for a request's turn; none if that takes too long.
    pub(super) async fn take(&self, tenant: TenantId, of: Of) -> Option<Turn> {
        let wait = async {
            let version = self.version(of).lock_owned().await;
            // Whoever waits for its tenant's share takes no place from others meanwhile.
            let share = self.share_of(tenant).acquire_owned().await.ok()?;
            let place = self.places.clone().acquire_owned().await.ok()?;
            Some(Turn { _version: version, _places: Some((share, place)) })
        };
        tokio::time::timeout(self.patience, wait).await.ok().flatten()
    }

    /// The same for the worker, who has time and a place of its own.
    pub(super) async fn take_patiently(&self, of: Of) -> Turn {
        Turn { _version: self.version(of).lock_owned().await, _places: None }
    }

    fn share_of(&self, tenant: TenantId) -> Arc<Semaphore> {
        self.shares.get(tenant, || Semaphore::new(self.share))
    }

    fn version(&self, of: Of) -> Arc<Waiting<()>> {
        self.versions.get(of, Waiting::default)
    }

    /// The digest of an upload that was read before: an upload never changes.
    pub(super) fn digest(&self, upload: &str) -> Option<String> {
        locked(&self.digests).get(upload).cloned()
    }

    /// Remembers a digest, so that whoever waited need not read the same again, and what was read
    /// for a client that went away is not lost.
    pub(super) fn remember(&self, upload: String, sha256: String) {
        let mut digests = locked(&self.digests);
        if digests.len() >= MAX_DIGESTS {
            digests.clear();
        }
        digests.insert(upload, sha256);
    }
}

/// Things that live as long as somebody holds them, and that everybody finds by the same key.
#[derive(Debug)]
struct Shared<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Shared<K, V> {
    fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut all = locked(&self.0);
        if let Some(there) = all.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        all.retain(|_, one| one.strong_count() > 0);
        let new = Arc::new(make());
        all.insert(key, Arc::downgrade(&new));
        new
    }
}

/// No one panics while holding one of these; if so, what they hold is still whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_for_each_version_and_few_in_all() {
        let turns = Turns { patience: Duration::from_millis(20), ..Turns::new(2) };
        let (one, two, three) = (RegisteredId::new(), RegisteredId::new(), RegisteredId::new());
        let (a, b, c) = (TenantId::new(), TenantId::new(), TenantId::new());
        let first = turns.take(a, (one, 1)).await;
        assert!(first.is_some());
        assert!(turns.take(b, (one, 1)).await.is_none(), "it is being read");
        let second = turns.take(b, (two, 1)).await;
        assert!(second.is_some());
        assert!(turns.take(c, (three, 1)).await.is_none(), "two are being read");
        drop(turns.take_patiently((three, 1)).await);
        drop(first);
        assert!(turns.take(a, (one, 1)).await.is_some());
        assert!(turns.take(c, (three, 1)).await.is_some());
        assert!(turns.take(c, (two, 1)).await.is_none());
        assert_eq!(locked(&turns.versions.0).len(), 2, "forgotten when nobody waits");
        assert!(locked(&turns.shares.0).len() <= 3, "likewise");
    }

    #[tokio::test]
    async fn a_tenant_has_half_of_the_places() {
        let turns = Turns { patience: Duration::from_millis(20), ..Turns::new(4) };
        let (busy, other) = (TenantId::new(), TenantId::new());
        let turn = |tenant| turns.take(tenant, (RegisteredId::new(), 1));
        let held = (turn(busy).await, turn(busy).await);
        assert!(held.0.is_some() && held.1.is_some());
        assert!(turn(busy).await.is_none(), "half is enough");
        let more = (turn(other).await, turn(other).await);
        assert!(more.0.is_some() && more.1.is_some());
        drop(held);
        assert!(turn(busy).await.is_some());
    }

    #[tokio::test]
    async fn who_waits_gets_its_turn() {
        let turns = Arc::new(Turns::new(1));
        let (tenant, of) = (TenantId::new(), (RegisteredId::new(), 1));
        let first = turns.take(tenant, of).await.unwrap();
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(tenant, of).await.is_some() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn digests_are_forgotten_before_there_are_too_many() {
        let turns = Turns::new(1);
        for n in 0..=MAX_DIGESTS {
            turns.remember(n.to_string(), "x".to_owned());
        }
        assert_eq!(turns.digest("0"), None);
        assert_eq!(turns.digest(&MAX_DIGESTS.to_string()).as_deref(), Some("x"));
    }
}
