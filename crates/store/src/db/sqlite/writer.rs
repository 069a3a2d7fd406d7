//! Group commit: writes that arrive while an fsync runs share the next one.
//!
//! One thread owns the writing connection. It takes the first waiting job, opens a transaction,
//! runs the job and whatever else waits by then (each further one inside its own savepoint, unless all
//! of them can be run again), appends to the logs what all of them record, commits once, and only then
//! tells each caller its own result.
//! A job that fails is undone and harms nobody; a commit that fails fails every job in it, and nothing
//! of them remains.
//!
//! Callers that shared one commit tend to come back together. The thread leaves its transaction open a
//! moment for them, and runs each as it comes: at most as long as the last commit took, and not at all
//! for a caller that was alone. Where they have more to do in between than that, waiting only keeps the
//! processors idle: then it goes on with those who are there, so that one half is written while the
//! other is on its way, and asks again ever more seldom whether waiting pays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use falaj_base::{Clock, Error, Result, code};
use rusqlite::{Connection, Statement};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpoints;
use super::patience::Patience;
use super::{execute_many, translate};
use crate::db::config::DatabaseConfig;
use crate::db::copy;
use crate::db::tx::{Appended, Engine, Tx};
use crate::record::{Entries, ReplyKey, audit_row};

/// How long a write may wait for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(5);

/// The longest pause for callers to come back.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// How many of them end a pause: to be woken for each would cost more than it brings.
const WOKEN_FOR: usize = 24;

/// A caller's work, with its type erased: run inside the shared transaction, answered after it.
trait Job: Send {
    /// Whether it can be run again, should the transaction be begun anew.
    fn repeats(&self) -> bool;
    /// Whether the work succeeded, so that what it wrote is to be kept.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Forgets how it went: what it wrote was undone, and unless it runs again it has failed.
    fn forget(&mut self);
    fn answer(self: Box<Self>, committed: Result<()>);
}

/// What is to be done: once, or as often as it takes.
trait Code<T>: Send {
    const REPEATS: bool;
    fn run(&mut self, tx: &mut Tx<'_>) -> Option<Result<T>>;
}

struct Once<F>(Option<F>);

impl<T, F: FnOnce(&mut Tx<'_>) -> Result<T> + Send> Code<T> for Once<F> {
    const REPEATS: bool = false;

    fn run(&mut self, tx: &mut Tx<'_>) -> Option<Result<T>> {
        self.0.take().map(|code| code(tx))
    }
}

struct Again<F>(F);

impl<T, F: Fn(&mut Tx<'_>) -> Result<T> + Send> Code<T> for Again<F> {
    const REPEATS: bool = true;

    fn run(&mut self, tx: &mut Tx<'_>) -> Option<Result<T>> {
        Some((self.0)(tx))
    }
}

struct Work<C, T> {
    code: C,
    /// Absent until the work has run to its end: still absent after a panic.
    result: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
}

impl<C: Code<T>, T: Send> Job for Work<C, T> {
    fn repeats(&self) -> bool {
        C::REPEATS
    }

    fn forget(&mut self) {
        self.result = None;
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        self.result = self.code.run(tx).map(|result| result.and_then(|value| tx.sound(value)));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let Self { code, result, caller } = *self;
        // What it holds is let go before the caller goes on.
        drop(code);
        let result = match result {
            Some(Err(own)) => Err(own),
            Some(Ok(value)) => committed.map(|()| value),
            None => committed.and_then(|()| Err(Error::internal("a write did not run to its end"))),
        };
        // The caller may have gone (deadline, disconnect); the change stands all the same.
        let _ = caller.send(result);
    }
}

pub(in crate::db) struct Writer {
    queue: mpsc::Sender<Box<dyn Job>>,
    thread: thread::Thread,
    awaited: Arc<Awaited>,
    counters: Arc<Counters>,
}

/// How many jobs the thread pauses for; none when it does not.
#[derive(Debug, Default)]
struct Awaited(AtomicUsize);

/// What the writer has done since it started.
#[derive(Debug, Default)]
pub(in crate::db) struct Counters {
    pub(in crate::db) commits: AtomicU64,
    pub(in crate::db) writes: AtomicU64,
}

impl Writer {
    /// With a connection to write with, and one for checkpoints.
    pub(in crate::db) fn start(
        (mut connection, other): (Connection, Connection),
        config: &DatabaseConfig,
        clock: Clock,
        replies: ReplyKey,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(config.write_queue);
        let (counters, awaited) = (Arc::<Counters>::default(), Arc::<Awaited>::default());
        let checkpoints = Checkpoints::start(&mut connection, other)?;
        let thread = Thread {
            connection,
            clock,
            replies,
            batch: config.write_batch,
            awaited: awaited.clone(),
            counters: counters.clone(),
        };
        let started = thread::Builder::new()
            .name("falaj-writer".to_owned())
            .spawn(move || thread.run(jobs, checkpoints))
            .map_err(Error::internal)?;
        Ok(Self { queue, thread: started.thread().clone(), awaited, counters })
    }

    pub(in crate::db) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.queue(Once(Some(work))).await
    }

    /// Writes what may be run more than once; the last time counts. It is cheaper, see [`Done`].
    pub(in crate::db) async fn write_again<T, F>(&self, work: F) -> Result<T>
    where
        F: Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.queue(Again(work)).await
    }

    async fn queue<T: Send + 'static>(&self, code: impl Code<T> + 'static) -> Result<T> {
        let (caller, answered) = oneshot::channel();
        let job = Box::new(Work { code, result: None, caller });
        match self.queue.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => self.wait_for_a_place(job).await?,
            Err(TrySendError::Closed(_)) => return Err(stopped()),
        }
        self.wake_if_awaited();
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Ends the thread's pause if this was the last one it waits for.
    fn wake_if_awaited(&self) {
        let awaited = self.awaited.0.load(Ordering::SeqCst);
        let queued = self.queue.max_capacity() - self.queue.capacity();
        if awaited > 0 && queued >= awaited && self.awaited.0.swap(0, Ordering::SeqCst) > 0 {
            self.thread.unpark();
        }
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
    awaited: Arc<Awaited>,
    counters: Arc<Counters>,
}

/// What begins and ends transactions and their parts: run for every job, so compiled once.
struct Verbs<'a> {
    begin: Statement<'a>,
    commit: Statement<'a>,
    roll_back: Statement<'a>,
    set_savepoint: Statement<'a>,
    roll_back_to_savepoint: Statement<'a>,
    release_savepoint: Statement<'a>,
}

impl<'a> Verbs<'a> {
    fn of(connection: &'a Connection) -> Result<Self> {
        let prepare = |verb| connection.prepare(verb).map_err(translate);
        Ok(Self {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            roll_back: prepare("ROLLBACK")?,
            set_savepoint: prepare("SAVEPOINT job")?,
            roll_back_to_savepoint: prepare("ROLLBACK TO job")?,
            release_savepoint: prepare("RELEASE job")?,
        })
    }

    /// Undoes the transaction and begins another. If it cannot begin, nothing more runs, and the commit
    /// will tell.
    fn start_over(&mut self) {
        let _ = run_verb(&mut self.roll_back).and_then(|()| run_verb(&mut self.begin));
    }
}

fn run_verb(verb: &mut Statement<'_>) -> Result<()> {
    verb.raw_execute().map(drop).map_err(translate)
}

/// What stays of the jobs of a transaction until it commits.
#[derive(Default)]
struct Kept {
    appended: Appended,
    entries: Entries,
    /// The number that they stamp rows with.
    counted: Option<i64>,
}

impl Kept {
    /// All that is appended, shared audit entries too.
    fn into_appended(self) -> Result<Appended> {
        let mut appended = self.appended;
        for entry in self.entries.into_vec() {
            let (sql, row) = audit_row((0, None), &entry)?;
            appended.push(sql, row);
        }
        Ok(appended)
    }
}

/// The jobs of a transaction that have run.
///
/// To undo one alone takes a savepoint, for which every page that it changes is copied. Those that can be
/// run again do without, as long as all in their transaction can:
/// should one fail after it has changed something, the transaction is begun anew, and all run again.
#[derive(Default)]
struct Done {
    jobs: Vec<Box<dyn Job>>,
    kept: Kept,
    /// Whether each is undone alone from here on.
    apart: bool,
}

/// How the last commit went.
#[derive(Default)]
struct Shared {
    jobs: usize,
    /// Those who came while it ran.
    waiting: usize,
    took: Duration,
}

impl Thread {
    fn run(self, mut jobs: mpsc::Receiver<Box<dyn Job>>, mut checkpoints: Checkpoints) {
        // It fails for want of memory only; without a thread every write is told that it has stopped.
        let Ok(mut verbs) = Verbs::of(&self.connection) else { return };
        let (mut patience, mut last) = (Patience::default(), Shared::default());
        while let Some(first) = jobs.blocking_recv() {
            let waits = last.jobs > 1 && patience.waits();
            let expected = if waits { self.batch.min(last.jobs + last.waiting) } else { 0 };
            last = self.commit_together(first, &mut jobs, (expected, last.took), &mut verbs);
            checkpoints.look(&self.connection);
            if waits {
                patience.learn(last.jobs >= expected);
            }
        }
    }

    /// The next job. Where so many are missed, it may be waited for until then.
    fn next(
        &self,
        jobs: &mut mpsc::Receiver<Box<dyn Job>>,
        missed: usize,
        end: &mut Option<Instant>,
        pause: Duration,
    ) -> Option<Box<dyn Job>> {
        loop {
            if let Ok(job) = jobs.try_recv() {
                return Some(job);
            }
            let now = Instant::now();
            // The moment begins when nobody is there for the first time.
            let left = end.get_or_insert(now + pause.min(LONGEST_PAUSE)).duration_since(now);
            if missed == 0 || left.is_zero() {
                return None;
            }
            self.awaited.0.store(missed.min(WOKEN_FOR), Ordering::SeqCst);
            // Some may have come before they could know that they are waited for.
            if jobs.is_empty() {
                thread::park_timeout(left);
            }
            self.awaited.0.store(0, Ordering::SeqCst);
        }
    }

    fn commit_together(
        &self,
        first: Box<dyn Job>,
        jobs: &mut mpsc::Receiver<Box<dyn Job>>,
        (expected, pause): (usize, Duration),
        verbs: &mut Verbs<'_>,
    ) -> Shared {
        let (mut done, mut end) = (Done::default(), None);
        let begun = run_verb(&mut verbs.begin);
        let mut next = Some(first);
        while let Some(job) = next {
            self.run_beside(job, &mut done, verbs);
            let missed = expected.saturating_sub(done.jobs.len());
            next = if done.jobs.len() < self.batch {
                self.next(jobs, missed, &mut end, pause)
            } else {
                None
            };
        }
        let Done { jobs: done, kept, .. } = done;
        let since = Instant::now();
        let committed = begun.and_then(|()| self.commit(kept, verbs));
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

    /// Runs a job of a transaction, beside those that have run.
    fn run_beside(&self, mut job: Box<dyn Job>, done: &mut Done, verbs: &mut Verbs<'_>) {
        // Not in a transaction any more: it could not begin, or a full disk made SQLite roll it all
        // back. Nothing may run then, lest it commit on its own.
        if !self.connection.is_autocommit() {
            if !done.apart && job.repeats() {
                let before = self.connection.total_changes();
                let is_kept = self.run_contained(job.as_mut(), &mut done.kept);
                if !is_kept && self.connection.total_changes() != before {
                    job.forget();
                    self.begin_anew(done, verbs);
                    self.run_in_savepoint(job.as_mut(), &mut done.kept, verbs);
                }
            } else if done.jobs.is_empty() {
                self.run_first(job.as_mut(), &mut done.kept, verbs);
            } else {
                self.run_in_savepoint(job.as_mut(), &mut done.kept, verbs);
            }
        }
        done.apart |= !job.repeats();
        done.jobs.push(job);
    }

    /// Undoes everything, and runs those who have run again, each so that it can be undone alone.
    fn begin_anew(&self, done: &mut Done, verbs: &mut Verbs<'_>) {
        done.apart = true;
        done.kept = Kept::default();
        done.jobs.iter_mut().for_each(|job| job.forget());
        if self.connection.is_autocommit() {
            return;
        }
        verbs.start_over();
        for job in &mut done.jobs {
            self.run_in_savepoint(job.as_mut(), &mut done.kept, verbs);
        }
    }

    /// Runs the first job of a transaction: to undo it is to begin again, so it needs no savepoint.
    fn run_first(&self, job: &mut dyn Job, kept: &mut Kept, verbs: &mut Verbs<'_>) {
        if !self.run_contained(job, kept) && !self.connection.is_autocommit() {
            verbs.start_over();
        }
    }

    /// Runs a further job so that its failure, or its panic, undoes that job alone.
    fn run_in_savepoint(&self, job: &mut dyn Job, kept: &mut Kept, verbs: &mut Verbs<'_>) {
        // Outside of a transaction a savepoint would begin one, and keep what the job wrote.
        if self.connection.is_autocommit() || run_verb(&mut verbs.set_savepoint).is_err() {
            return;
        }
        // These fail only when SQLite has rolled everything back already: the commit will tell.
        if !self.run_contained(job, kept) {
            let _ = run_verb(&mut verbs.roll_back_to_savepoint);
        }
        let _ = run_verb(&mut verbs.release_savepoint);
    }

    /// Whether the job ran to its end and is to be kept.
    fn run_contained(&self, job: &mut dyn Job, kept: &mut Kept) -> bool {
        let engine = Engine::Sqlite(&self.connection);
        let mut tx = Tx::new(engine, &self.clock, self.replies.get()).one_of_several(kept.counted);
        let is_kept = catch_unwind(AssertUnwindSafe(|| job.run(&mut tx))).unwrap_or(false);
        if is_kept {
            kept.counted = tx.counted;
            kept.appended.extend(tx.appended.take().unwrap_or_default());
            kept.entries.extend(tx.entries.take().unwrap_or_default());
        }
        is_kept
    }

    fn commit(&self, kept: Kept, verbs: &mut Verbs<'_>) -> Result<()> {
        if self.connection.is_autocommit() {
            return Err(Error::new(
                &code::STORAGE_FULL,
                "the metadata store could not be written; free disk space and try again",
            ));
        }
        let written = kept.into_appended().and_then(|appended| {
            appended.into_rows().try_for_each(|(sql, rows)| {
                execute_many(&self.connection, sql, rows.into_iter()).map(drop)
            })
        });
        let committed = written.and_then(|()| run_verb(&mut verbs.commit));
        if committed.is_err() && !self.connection.is_autocommit() {
            let _ = run_verb(&mut verbs.roll_back);
        }
        committed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Mutex;

    use falaj_base::Timestamp;

    use super::*;
    use crate::db::value::params;

    /// One that others come behind while it waits, and one that has no room beside it after it has written
    /// something, but would have alone: whatever becomes of the transaction, what was answered is what is
    /// there.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_answered_is_what_is_kept_when_the_disk_is_full() {
        // A statement of one row, for which SQLite undoes all; and one of several.
        for full in [
            "INSERT INTO t (name) VALUES (zeroblob(60000))",
            "INSERT INTO t (name) SELECT zeroblob(20000) FROM (VALUES (1), (2), (3))",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("db");
            let connection = Connection::open(&path).unwrap();
            connection
                .execute_batch(
                    "PRAGMA journal_mode = WAL; PRAGMA max_page_count = 30; PRAGMA cache_size = 2;
                     CREATE TABLE t (name)",
                )
                .unwrap();
            let clock = Clock::manual(Timestamp::from_micros(0));
            let config = DatabaseConfig::default();
            let connections = (connection, Connection::open(&path).unwrap());
            let writer = Writer::start(connections, &config, clock, ReplyKey::default()).unwrap();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let wait = Mutex::new(wait);
            let insert = |name: &'static str| {
                move |tx: &mut Tx<'_>| tx.put("INSERT INTO t (name) VALUES ($1)", &params![name])
            };
            let first = writer.write_again(move |tx| {
                // Again it need not wait: nobody is there to answer.
                let _ = wait.lock().unwrap().recv();
                insert("first")(tx)?;
                tx.put("INSERT INTO t (name) VALUES (zeroblob(60000))", &[])
            });
            let second = writer.write_again(move |tx| {
                insert("second")(tx)?;
                tx.put(full, &[])
            });
            let third = writer.write_again(insert("third"));
            let released = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(go);
            };
            let (first, second, third, ()) = tokio::join!(first, second, third, released);
            let answered = [("first", first), ("second", second), ("third", third)];
            let expected: Vec<_> = answered
                .iter()
                .filter(|(_, answer)| answer.is_ok())
                .map(|(name, _)| *name)
                .collect();
            let reader = Connection::open(&path).unwrap();
            let mut found =
                reader.prepare("SELECT name FROM t WHERE length(name) < 9 ORDER BY rowid").unwrap();
            let found = found.query_map([], |row| row.get::<_, String>(0)).unwrap();
            assert_eq!(found.collect::<rusqlite::Result<Vec<_>>>().unwrap(), expected, "{full}");
        }
    }
}
