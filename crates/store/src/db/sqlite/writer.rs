//! Group commit: writes that arrive while an fsync runs share the next one.
//!
//! One thread owns the writing connection. It takes the first waiting job, opens a transaction,
//! runs the job and whatever else waits by then (each further one inside its own savepoint), commits
//! once, and only then tells each caller its own result. A job that fails is undone and harms
//! nobody; a commit that fails fails every job in it, and nothing of them remains.
//!
//! Callers that shared one commit tend to come back together. The thread gives them a moment for
//! that: at most as long as the commit took, and none at all to a caller that was alone. Where they
//! have more to do in between than that, waiting only keeps the processors idle: then it goes on with
//! those who are there, so that one half is written while the other is on its way, and asks again
//! ever more seldom whether waiting pays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use falaj_base::{Clock, Error, Result, code};
use rusqlite::Connection;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::control;
use crate::db::config::DatabaseConfig;
use crate::db::copy;
use crate::db::tx::{Engine, Tx};
use crate::record::ReplyKey;

/// How long a write may wait for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(5);

/// The longest and the shortest pause for callers to come back.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
const STEP: Duration = Duration::from_micros(50);
/// The most commits in a row after which nobody is waited for.
const MOST_UNWAITED: u32 = 256;

/// A caller's work, with its type erased: run inside the shared transaction, answered after it.
trait Job: Send {
    /// Whether the work succeeded, so that its savepoint is to be kept.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    fn answer(self: Box<Self>, committed: Result<()>);
}

struct Work<F, T> {
    code: Option<F>,
    /// Absent until the work has run to its end: still absent after a panic.
    result: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
}

impl<F, T> Job for Work<F, T>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        self.result = self.code.take().map(|code| code(tx).and_then(|value| tx.sound(value)));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let result = match self.result {
            Some(Err(own)) => Err(own),
            Some(Ok(value)) => committed.map(|()| value),
            None => committed.and_then(|()| Err(Error::internal("a write panicked"))),
        };
        // The caller may have gone (deadline, disconnect); the change stands all the same.
        let _ = self.caller.send(result);
    }
}

pub(in crate::db) struct Writer {
    queue: mpsc::Sender<Box<dyn Job>>,
    counters: Arc<Counters>,
}

/// What the writer has done since it started.
#[derive(Debug, Default)]
pub(in crate::db) struct Counters {
    pub(in crate::db) commits: AtomicU64,
    pub(in crate::db) writes: AtomicU64,
}

impl Writer {
    pub(in crate::db) fn start(
        connection: Connection,
        config: &DatabaseConfig,
        clock: Clock,
        replies: ReplyKey,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(config.write_queue);
        let counters = Arc::<Counters>::default();
        let thread = Thread {
            connection,
            clock,
            replies,
            batch: config.write_batch,
            counters: counters.clone(),
        };
        thread::Builder::new()
            .name("falaj-writer".to_owned())
            .spawn(move || thread.run(jobs))
            .map_err(Error::internal)?;
        Ok(Self { queue, counters })
    }

    pub(in crate::db) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (caller, answered) = oneshot::channel();
        let job = Box::new(Work { code: Some(work), result: None, caller });
        match self.queue.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => self.wait_for_a_place(job).await?,
            Err(TrySendError::Closed(_)) => return Err(stopped()),
        }
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn wait_for_a_place(&self, job: Box<dyn Job>) -> Result<()> {
        match tokio::time::timeout(QUEUE_WAIT, self.queue.send(job)).await {
            Err(_elapsed) => Err(Error::new(&code::OVERLOADED, "the write queue is full")
                .retry_after(Duration::from_secs(1))),
            Ok(Err(_closed)) => Err(stopped()),
            Ok(Ok(())) => Ok(()),
        }
    }

    pub(in crate::db) fn counters(&self) -> &Counters {
        &self.counters
    }
}

fn stopped() -> Error {
    Error::internal("the writer thread has stopped")
}

struct Thread {
    connection: Connection,
    clock: Clock,
    replies: ReplyKey,
    batch: usize,
    counters: Arc<Counters>,
}

/// How the last commit went.
struct Shared {
    jobs: usize,
    /// Those who came while it ran.
    waiting: usize,
    took: Duration,
}

/// Whether waiting for callers has paid of late.
#[derive(Debug, Default)]
struct Patience {
    /// Commits after which nobody will be waited for.
    unwaited: u32,
    /// How many it will be once waiting was in vain again.
    next: u32,
}

impl Patience {
    fn waits(&mut self) -> bool {
        let waits = self.unwaited == 0;
        self.unwaited = self.unwaited.saturating_sub(1);
        waits
    }

    fn learn(&mut self, all_came: bool) {
        self.next = if all_came { 1 } else { (self.next * 2).clamp(1, MOST_UNWAITED) };
        self.unwaited = if all_came { 0 } else { self.next };
    }
}

impl Thread {
    fn run(self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        let mut patience = Patience::default();
        while let Some(first) = jobs.blocking_recv() {
            let shared = self.commit_together(first, &mut jobs);
            if shared.jobs > 1 && patience.waits() {
                patience.learn(self.gather(&shared, &jobs));
            }
        }
    }

    /// Waits until those who shared the last commit are back, if that takes no longer than it took.
    /// Whether they came.
    fn gather(&self, shared: &Shared, jobs: &mpsc::Receiver<Box<dyn Job>>) -> bool {
        let expected = self.batch.min(shared.jobs + shared.waiting);
        let end = Instant::now() + shared.took.min(LONGEST_PAUSE);
        while jobs.len() < expected {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(STEP);
        }
        true
    }

    fn commit_together(
        &self,
        first: Box<dyn Job>,
        jobs: &mut mpsc::Receiver<Box<dyn Job>>,
    ) -> Shared {
        let mut done = Vec::new();
        let begun = self.begin();
        let mut next = Some(first);
        while let Some(mut job) = next {
            // Not in a transaction any more: it could not begin, or a full disk made SQLite roll
            // it all back. Nothing may run then, lest it commit on its own.
            if !self.connection.is_autocommit() {
                if done.is_empty() {
                    self.run_first(job.as_mut());
                } else {
                    self.run_in_savepoint(job.as_mut());
                }
            }
            done.push(job);
            next = if done.len() < self.batch { jobs.try_recv().ok() } else { None };
        }
        let since = Instant::now();
        let committed = begun.and_then(|()| self.commit());
        let shared = Shared { jobs: done.len(), waiting: jobs.len(), took: since.elapsed() };
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.writes.fetch_add(done.len() as u64, Ordering::Relaxed);
        for job in done {
            job.answer(match &committed {
                Ok(()) => Ok(()),
                Err(error) => Err(copy(error)),
            });
        }
        shared
    }

    fn begin(&self) -> Result<()> {
        control(&self.connection, "BEGIN IMMEDIATE")
    }

    /// Runs the first job of a transaction: to undo it is to begin again, so it needs no savepoint.
    fn run_first(&self, job: &mut dyn Job) {
        if !self.run_contained(job) && !self.connection.is_autocommit() {
            // If it cannot begin again, nothing more runs, and the commit will tell.
            let _ = control(&self.connection, "ROLLBACK").and_then(|()| self.begin());
        }
    }

    /// Runs a further job so that its failure, or its panic, undoes that job alone.
    fn run_in_savepoint(&self, job: &mut dyn Job) {
        if control(&self.connection, "SAVEPOINT job").is_err() {
            return;
        }
        // These fail only when SQLite has rolled everything back already: the commit will tell.
        if !self.run_contained(job) {
            let _ = control(&self.connection, "ROLLBACK TO job");
        }
        let _ = control(&self.connection, "RELEASE job");
    }

    /// Whether the job ran to its end and is to be kept.
    fn run_contained(&self, job: &mut dyn Job) -> bool {
        let mut tx = Tx::new(Engine::Sqlite(&self.connection), &self.clock, self.replies.get());
        catch_unwind(AssertUnwindSafe(|| job.run(&mut tx))).unwrap_or(false)
    }

    fn commit(&self) -> Result<()> {
        if self.connection.is_autocommit() {
            return Err(Error::new(
                &code::STORAGE_FULL,
                "the metadata store could not be written; free disk space and try again",
            ));
        }
        let committed = control(&self.connection, "COMMIT");
        if committed.is_err() && !self.connection.is_autocommit() {
            let _ = control(&self.connection, "ROLLBACK");
        }
        committed
    }
}
