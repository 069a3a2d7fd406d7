//! Entries for allowed reads and failed sign-ins, gathered and written in batches.
//!
//! A read that is served from memory cannot wait for a disk. Its entry waits here instead, for a
//! second at most, and goes to the log with all the others of that second in one transaction.
//!
//! Must hold:
//! - [`ReadLog::note`] never waits and never fails.
//! - Nothing is lost silently: entries carry the name of their queue and a running number, so that
//!   a crash shows as a gap; what found the queue full is counted, and the count becomes an entry.
//! - The queue is bounded; a write that fails leaves its entries in it.
//!
//! Not here: entries of changes and denials, which are written in the transaction they belong to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falaj_base::{Action, Ctx, Resource, Result, Role, Timestamp};
use falaj_store::db::{Db, Tx};
use falaj_store::record::AuditEntry;
use falaj_store::worker::Worker;
use tokio::sync::Notify;

/// The longest an entry waits.
pub const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Stands on the log for entries that were lost; nobody can be allowed to do it.
pub static AUDIT_GAP: Action =
    Action::write("audit:gap", Role::Admin, "Entries were lost because too many came at once");

/// The queue. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct ReadLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    db: Db,
    /// Names this queue, one per start of a server, in each of its entries.
    name: String,
    limit: usize,
    batch: usize,
    queue: Mutex<Queue>,
    /// Only one flush at a time, or two batches could swap places.
    flushing: tokio::sync::Mutex<()>,
    full: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<AuditEntry>,
    noted: u64,
    /// How many found no room and are not yet on the log as lost, and since when.
    lost: Option<(u64, Timestamp)>,
}

impl ReadLog {
    #[must_use]
    pub fn new(db: Db, limit: usize, batch: usize) -> Self {
        Self(Arc::new(Inner {
            db,
            name: uuid::Uuid::now_v7().simple().to_string(),
            limit: limit.max(1),
            batch: batch.max(1),
            queue: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            full: Arc::default(),
        }))
    }

    /// Takes an entry for the next batch.
    pub fn note(&self, mut entry: AuditEntry) {
        let mut queue = self.queue();
        queue.noted += 1;
        if queue.entries.len() >= self.0.limit {
            let (lost, since) = queue.lost.unwrap_or((0, entry.at));
            queue.lost = Some((lost + 1, since));
            return;
        }
        entry.details.insert("queue".to_owned(), self.0.name.clone());
        entry.details.insert("queue_number".to_owned(), queue.noted.to_string());
        queue.entries.push_back(entry);
        if queue.entries.len().is_multiple_of(self.0.batch) {
            self.0.full.notify_one();
        }
    }

    /// How many entries wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue().entries.len()
    }

    /// Writes everything that waits. Also the last thing a server does before it stops.
    ///
    /// Entries leave the queue only once they are written: a flush that fails or is dropped
    /// half-way loses nothing, though it may write an entry twice, under the same number.
    pub async fn flush(&self) -> Result<()> {
        let _alone = self.0.flushing.lock().await;
        // What comes in meanwhile is for the next flush, or this one might never end.
        let mut left = self.waiting();
        loop {
            let (batch, lost) = self.peek(left.min(self.0.batch));
            let count = batch.len();
            if count == 0 && lost.is_none() {
                return Ok(());
            }
            let gap = lost.map(|(lost, since)| self.gap(lost, since));
            let write = move |tx: &mut Tx<'_>| {
                batch.iter().chain(&gap).try_for_each(|entry| tx.append_audit(entry))
            };
            self.0.db.write(write).await?;
            self.forget(count, lost);
            left -= count;
        }
    }

    fn peek(&self, count: usize) -> (Vec<AuditEntry>, Option<(u64, Timestamp)>) {
        let queue = self.queue();
        (queue.entries.iter().take(count).cloned().collect(), queue.lost)
    }

    /// Entries are only ever added behind the ones just written, so these are still in front.
    fn forget(&self, count: usize, lost: Option<(u64, Timestamp)>) {
        let mut queue = self.queue();
        queue.entries.drain(..count);
        if let (Some((told, _)), Some((total, since))) = (lost, queue.lost) {
            queue.lost = (total > told).then_some((total - told, since));
        }
    }

    fn gap(&self, lost: u64, since: Timestamp) -> AuditEntry {
        let (ctx, now) = (Ctx::system("audit-reads"), self.0.db.now());
        let mut entry = AuditEntry::allowed(&ctx, &AUDIT_GAP, &Resource::platform(), now);
        entry.details.insert("queue".to_owned(), self.0.name.clone());
        entry.details.insert("lost".to_owned(), lost.to_string());
        entry.details.insert("since".to_owned(), since.to_string());
        entry
    }

    /// Runs on every server: each has its own queue.
    #[must_use]
    pub fn worker(&self) -> Worker {
        let log = self.clone();
        Worker::new("audit-reads", FLUSH_EVERY, move || {
            let log = log.clone();
            async move { log.flush().await }
        })
        .woken_by(self.0.full.clone())
        .on_every_server()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
