//! Group commit on PostgreSQL: small writes that wait at the same time share a transaction.
//!
//! PostgreSQL runs transactions side by side, but each has its own beginning, its own end and its
//! own place in the log; a thousand small ones a second cost more in that than in what they write.
//! Here a leader takes the writes that wait, runs them one after the other in one transaction, and
//! answers them all when it is durable.
//!
//! Must hold:
//! - Writes are not undone one by one. One that refuses before it has changed anything is answered
//!   alone; after any other failure nothing of the transaction is kept, and each of its writes is
//!   sent back to run in a transaction of its own.
//! - A write is sent back only if it was certainly not kept: when a commit fails, all are told so.
//! - A write names the one row that it waits for, and waits for nothing else ([`Tx::alone`]). If the
//!   row is held by somebody, or is not there, it is sent back to wait alone: one row that is held
//!   for long keeps nobody else waiting, and nobody who waits keeps rows from others.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falaj_base::{Error, Result, code};
use tokio::sync::oneshot;

use super::connection::{Connection, Ended};
use super::pool::Pool;
use crate::db::config::DatabaseConfig;
use crate::db::held::Held;
use crate::db::tx::{Engine, Sharing, Tx};
use crate::db::value::{Row, Value};
use crate::db::{EngineHandle, Inner, Kind, WriteStats, blocking, copy};

/// One leader serves a few callers best: the larger a transaction, the less of it each costs. When
/// many wait, another fills the next transaction while the first waits for the disk.
const LEADERS: usize = 2;
/// How many must wait for the second.
const MANY: usize = 24;
/// How long the last leader stays when nobody waits: callers who come straight back then need not start
/// another, which wakes two threads.
const STAYS: Duration = Duration::from_millis(1);
/// A leader that stays keeps a connection from others; of so few it does not.
const ENOUGH: usize = 4;
/// The most writes in one transaction. Their rows stay held until all of them are done.
const TOGETHER: usize = 64;

/// What became of a write.
pub(in crate::db) enum Shared<T> {
    Done(Result<T>),
    /// It did not happen, and is to be run in a transaction of its own.
    Alone,
}

/// A caller's work, with its type erased.
pub(super) trait Job: Send {
    fn held(&self) -> &Held;
    /// Whether somebody waits for the answer.
    fn is_awaited(&self) -> bool;
    /// Whether the work succeeded.
    fn run(&mut self, tx: &mut Tx<'_>, row: Option<&Row>) -> bool;
    /// Tells the caller what the work said, if the commit went well.
    fn answer(self: Box<Self>, committed: Result<()>);
    fn send_back(self: Box<Self>);
}

struct Work<F, T> {
    held: Held,
    code: Arc<F>,
    /// Absent until the work has run to its end: still absent after a panic.
    result: Option<Result<T>>,
    caller: oneshot::Sender<Shared<T>>,
}

impl<F, T> Job for Work<F, T>
where
    F: Fn(&mut Tx<'_>, Option<&Row>) -> Result<T> + Send + Sync,
    T: Send,
{
    fn held(&self) -> &Held {
        &self.held
    }

    fn is_awaited(&self) -> bool {
        !self.caller.is_closed()
    }

    fn run(&mut self, tx: &mut Tx<'_>, row: Option<&Row>) -> bool {
        // What an earlier try said must not stand if this one panics.
        self.result = None;
        self.result = Some((self.code)(tx, row).and_then(|value| tx.sound(value)));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let result = match self.result {
            Some(Err(own)) => Err(own),
            Some(Ok(value)) => committed.map(|()| value),
            None => committed.and_then(|()| Err(Error::internal("a write panicked"))),
        };
        // The caller may have gone (deadline, disconnect); the change stands all the same.
        let _ = self.caller.send(Shared::Done(result));
    }

    fn send_back(self: Box<Self>) {
        let _ = self.caller.send(Shared::Alone);
    }
}

pub(super) type Jobs = Vec<Box<dyn Job>>;

/// Those who wait, and how many leaders serve them.
#[derive(Default)]
struct Waiting {
    jobs: Jobs,
    leaders: usize,
    /// How many of those have nothing to do and stay for a while: the last, or none.
    resting: usize,
}

impl Waiting {
    /// The first in line, and those like it, so many at most.
    fn take(&mut self, together: usize) -> Option<Jobs> {
        // Whoever has gone before its turn was told that nothing happened.
        self.jobs.retain(|job| job.is_awaited());
        if self.jobs.is_empty() {
            return None;
        }
        let first = self.jobs.remove(0);
        let mut jobs: Jobs = vec![first];
        let mut at = 0;
        while at < self.jobs.len() && jobs.len() < together {
            if self.jobs[at].held().is_like(jobs[0].held()) {
                jobs.push(self.jobs.remove(at));
            } else {
                at += 1;
            }
        }
        Some(jobs)
    }
}

pub(in crate::db) struct Group {
    waiting: Mutex<Waiting>,
    /// How many may wait.
    room: usize,
    together: usize,
    leaders: usize,
    stays: Option<Duration>,
    /// Told of those who come while leaders rest.
    came: Condvar,
    commits: AtomicU64,
    at_once: AtomicU64,
    writes: AtomicU64,
}

impl Group {
    pub(super) fn new(config: &DatabaseConfig) -> Self {
        Self {
            waiting: Mutex::default(),
            room: config.write_queue,
            together: config.write_batch.clamp(1, TOGETHER),
            // Half of the connections are left to others.
            leaders: (config.connections / 2).clamp(1, LEADERS),
            stays: (config.connections >= ENOUGH).then_some(STAYS),
            came: Condvar::new(),
            commits: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    pub(in crate::db) fn stats(&self) -> WriteStats {
        WriteStats {
            commits: self.commits.load(Ordering::Relaxed),
            at_once: self.at_once.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Waits with others, and for them.
    pub(in crate::db) async fn write<T, F>(
        &self,
        db: &Arc<Inner>,
        held: Held,
        code: Arc<F>,
    ) -> Result<Shared<T>>
    where
        F: Fn(&mut Tx<'_>, Option<&Row>) -> Result<T> + Send + Sync + 'static,
        T: Send + 'static,
    {
        let (caller, answered) = oneshot::channel();
        let job = Box::new(Work { held, code, result: None, caller });
        if self.join(job)? {
            tokio::spawn(lead(db.clone()));
        }
        answered.await.map_err(|_| Error::internal("a shared write was lost"))
    }

    /// Whether another leader is wanted.
    fn join(&self, job: Box<dyn Job>) -> Result<bool> {
        let mut waiting = self.waiting();
        if waiting.jobs.len() >= self.room {
            return Err(Error::new(&code::OVERLOADED, "the write queue is full")
                .retry_after(Duration::from_secs(1)));
        }
        waiting.jobs.push(job);
        if waiting.resting > 0 {
            self.came.notify_one();
            return Ok(false);
        }
        let wanted =
            waiting.leaders == 0 || (waiting.leaders < self.leaders && waiting.jobs.len() >= MANY);
        waiting.leaders += usize::from(wanted);
        Ok(wanted)
    }

    /// The next to share a transaction, waited for as long as a leader stays; without any, the leader goes.
    fn next(&self, stays: Option<Duration>) -> Option<Jobs> {
        let mut waiting = self.waiting();
        // One of several goes: were it handed the next to come, there would be two with small transactions
        // side by side for as long as anybody comes.
        if let (true, 1, Some(stays)) = (waiting.jobs.is_empty(), waiting.leaders, stays) {
            waiting.resting += 1;
            let nobody = |waiting: &mut Waiting| waiting.jobs.is_empty();
            let rested = self.came.wait_timeout_while(waiting, stays, nobody);
            waiting = rested.unwrap_or_else(PoisonError::into_inner).0;
            waiting.resting -= 1;
        }
        let jobs = waiting.take(self.together);
        if jobs.is_none() {
            waiting.leaders -= 1;
        }
        jobs
    }

    /// Counts a commit.
    fn count(&self, writes: usize) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves those who wait until nobody does.
async fn lead(db: Arc<Inner>) {
    let EngineHandle::Postgres(pool) = &db.engine else { return };
    loop {
        let (place, inner, own) = (pool.place().await, db.clone(), pool.clone());
        let served = match place {
            Ok(place) => {
                blocking(move || {
                    // Held until the connection is back.
                    let _place = place;
                    Ok(serve(&inner, &own))
                })
                .await
            }
            Err(error) => Ok(refuse(&own.group, &error)),
        };
        // A leader that fell over is replaced by itself.
        if matches!(served, Ok(Served::Nobody)) {
            return;
        }
    }
}

/// Why a leader stopped.
enum Served {
    /// Nobody waits any more, and it was signed off.
    Nobody,
    /// It could not go on with its connection.
    Interrupted,
}

fn refuse(group: &Group, error: &Error) -> Served {
    let Some(jobs) = group.next(None) else { return Served::Nobody };
    for job in jobs {
        job.answer(Err(copy(error)));
    }
    Served::Interrupted
}

fn serve(db: &Inner, pool: &Arc<Pool>) -> Served {
    let mut connection = match pool.take() {
        Ok(connection) => connection,
        Err(error) => return refuse(&pool.group, &error),
    };
    while let Some(jobs) = pool.group.next(pool.group.stays) {
        let usable = match at_once(db, &pool.group, &mut connection, jobs) {
            Tried::Over => true,
            Tried::Not(jobs) => share(db, &pool.group, &mut connection, jobs),
            Tried::Broken => false,
        };
        if !usable {
            return Served::Interrupted;
        }
    }
    pool.give_back(connection);
    Served::Nobody
}

/// What came of trying to write all at once.
enum Tried {
    /// All are answered.
    Over,
    /// Nothing happened.
    Not(Jobs),
    /// All are answered, and the connection cannot be used any more.
    Broken,
}

/// Writes all of these as one statement that is a transaction by itself, if their rows are remembered and
/// they ask for nothing else: no more is sent, and waited for, than once.
///
/// What they were told of their rows may be wrong by now. Then the statement refuses, and so it does where
/// somebody else holds one.
fn at_once(db: &Inner, group: &Group, connection: &mut Connection, mut jobs: Jobs) -> Tried {
    // One that was closed meanwhile is found out by asking, before anything is at stake.
    let known = if connection.is_open() { connection.memory.guard(&jobs) } else { None };
    let Some((guard, rows)) = known else { return Tried::Not(jobs) };
    connection.gather();
    let mut tx =
        Tx::new(Engine::Postgres(connection), &db.clock, db.replies.get()).sharing_entries();
    tx.sharing = Sharing::Shared;
    let run = |(job, row): (&mut Box<dyn Job>, &Row)| {
        catch_unwind(AssertUnwindSafe(|| job.run(&mut tx, Some(row)))).unwrap_or(false)
    };
    // One that refuses may do so because of what is remembered wrongly.
    let whole = jobs.iter_mut().zip(&rows).all(run) && tx.append_shared().is_ok();
    drop(tx);
    let written = whole.then(|| connection.write_guarded(&guard)).flatten();
    connection.scatter();
    connection.memory.was_of_use(matches!(written, Some(Ok(()))));
    let verdict = match written {
        None => return Tried::Not(jobs),
        Some(Err(Ended::Undone)) => {
            connection.memory.forget(&jobs);
            return Tried::Not(jobs);
        }
        Some(Err(Ended::Unknown(error))) => Err(error),
        Some(Ok(())) => {
            group.count(jobs.len());
            group.at_once.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    for job in jobs {
        job.answer(verdict.as_ref().map(drop).map_err(copy));
    }
    if verdict.is_ok() { Tried::Over } else { Tried::Broken }
}

/// Runs these in one transaction and answers them; tells whether the connection can be used again.
fn share(db: &Inner, group: &Group, connection: &mut Connection, jobs: Jobs) -> bool {
    let (kept, whole) = run(db, connection, jobs);
    let ended = connection.end_shared(if whole { "COMMIT" } else { "ROLLBACK" });
    if whole && ended.is_ok() {
        group.count(kept.len());
    }
    for job in kept {
        match &ended {
            _ if !whole => job.send_back(),
            Ok(()) => job.answer(Ok(())),
            Err(Ended::Undone) => job.send_back(),
            Err(Ended::Unknown(error)) => job.answer(Err(copy(error))),
        }
    }
    ended.is_ok()
}

/// The rows of all writes, by their keys. The list is padded to a power of two by repeating its
/// last, so that few different statements are ever prepared.
fn hold(connection: &mut Connection, jobs: &Jobs) -> Result<Vec<(Value, Row)>> {
    let Some(last) = jobs.last().map(|job| job.held()) else { return Ok(Vec::new()) };
    let padded = jobs.len().next_power_of_two();
    let mut ids: Vec<Value> = jobs.iter().map(|job| job.held().id.clone()).collect();
    ids.resize(padded, last.id.clone());
    let rows = connection.hold_numbered(&last.sql_many(padded), &ids)?;
    // The key comes first, see `Held::sql_many`.
    rows.into_iter()
        .map(|row| Ok((row.values.first().cloned().unwrap_or(Value::Null), row)))
        .collect()
}

/// Runs the writes, and answers those that refuse before they change anything. Gives the others,
/// and whether what they wrote can be kept.
fn run(db: &Inner, connection: &mut Connection, jobs: Jobs) -> (Jobs, bool) {
    let mut kept = Jobs::new();
    let begun = connection.begin(Kind::Write.beginning());
    let Ok(rows) = begun.and_then(|()| hold(connection, &jobs)) else { return (jobs, false) };
    if let Some(job) = jobs.first() {
        connection.memory.learn(job.held(), &rows);
    }
    let mut tx =
        Tx::new(Engine::Postgres(connection), &db.clock, db.replies.get()).sharing_entries();
    let mut whole = true;
    let mut met = HashSet::new();
    for mut job in jobs {
        if whole {
            let Some((place, (_, row))) =
                rows.iter().enumerate().find(|(_, (id, _))| *id == job.held().id)
            else {
                job.send_back();
                continue;
            };
            if !met.insert(place) {
                met = HashSet::from([place]);
                tx.next_turn();
            }
            tx.sharing = Sharing::Shared;
            tx.mark();
            let run = AssertUnwindSafe(|| job.run(&mut tx, Some(row)));
            let done = catch_unwind(run).unwrap_or(false);
            if !done && tx.is_untouched() {
                match tx.sharing {
                    Sharing::Unwilling => job.send_back(),
                    _ => job.answer(Ok(())),
                }
                continue;
            }
            whole = done;
        }
        kept.push(job);
    }
    let whole = whole && tx.append_shared().is_ok();
    (kept, whole)
}
