//! One number that moves whenever identity, roles or policies change.
//!
//! Caches of principals and decisions are keyed by the epoch they were filled under, so a change
//! empties them all at once. On the server that made the change this is immediate; the others
//! read the number once a second, which bounds how long a revoked token still works elsewhere.
//!
//! Must hold: a cache reads [`Epoch::current`] *before* it reads the database. The number in
//! memory moves only after the change has committed, so what was read before the commit can only
//! ever be filed under the old number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use falaj_base::Result;
use falaj_store::db::{Db, Migration, Tx, params};
use falaj_store::worker::Worker;

/// How often a server looks for changes made by another.
pub const POLL: Duration = Duration::from_secs(1);

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "epoch",
    sql: "CREATE TABLE epoch (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
          INSERT INTO epoch (id, value) VALUES (1, 1);",
}];

/// The row that moves with identity, roles and policies. A domain whose own caches must notice its
/// own changes adds a row of another number.
const GOVERNANCE: i64 = 1;

/// Shared by every cache that must notice a change.
#[derive(Clone, Debug)]
pub struct Epoch {
    db: Db,
    row: i64,
    value: Arc<AtomicU64>,
}

/// Proof that the epoch was moved in a transaction; to be published once that has committed.
#[derive(Clone, Copy, Debug)]
#[must_use = "publish it after the commit, or this server's caches stay stale for a second"]
pub struct Moved(u64);

impl Epoch {
    pub async fn load(db: Db) -> Result<Self> {
        let epoch = Self::of_row(db, GOVERNANCE);
        epoch.poll().await?;
        Ok(epoch)
    }

    /// The number that another domain keeps in a row of its own. It is read at the first poll.
    #[must_use]
    pub fn of_row(db: Db, row: i64) -> Self {
        Self { db, row, value: Arc::default() }
    }

    #[must_use]
    pub fn current(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Moves the number inside the transaction of the change that makes it necessary.
    pub fn bump(tx: &mut Tx<'_>) -> Result<Moved> {
        Self::bump_row(tx, GOVERNANCE)
    }

    /// The same for the row of another domain.
    pub fn bump_row(tx: &mut Tx<'_>, row: i64) -> Result<Moved> {
        let row = tx.query_one(
            "UPDATE epoch SET value = value + 1 WHERE id = $1 RETURNING value",
            &params![row],
        )?;
        Ok(Moved(row.get("value")?))
    }

    /// Makes a committed change visible to this server's caches.
    pub fn publish(&self, moved: Moved) {
        self.value.fetch_max(moved.0, Ordering::AcqRel);
    }

    /// Picks up changes that other servers committed.
    pub async fn poll(&self) -> Result<()> {
        let row = self.row;
        let read = move |tx: &mut Tx<'_>| {
            tx.query_one("SELECT value FROM epoch WHERE id = $1", &params![row])?
                .get::<u64>("value")
        };
        self.publish(Moved(self.db.read(read).await?));
        Ok(())
    }

    /// Runs on every server, not under a lease: each has its own caches.
    #[must_use]
    pub fn poller(&self, name: &'static str) -> Worker {
        let epoch = self.clone();
        Worker::new(name, POLL, move || {
            let epoch = epoch.clone();
            async move { epoch.poll().await }
        })
        .on_every_server()
    }
}
