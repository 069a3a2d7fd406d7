//! The scheduler at work: one server at a time holds it, feeds it, does what it decides and tells it
//! what came of that.
//!
//! A pass: what requests noted down, what launches came to, what executors tell, whose time to save
//! its work is over; then the scheduler decides, starts are written down and launched.
//!
//! Must hold:
//! - A start is in the database before its executor is asked, so whoever begins anew asks for the same
//!   one again, and an executor starts the same one once.
//! - A task has one start at a time. Its end is written once, with everything that follows from it in
//!   the books; what follows outside (output, tokens, runs) is done after, as often as it takes.
//! - An executor is asked beside the pass, and a pass waits for none that is slow: see [`busy`].
//! - Every write makes sure that nobody else schedules by now. If one fails, all that was in mind is
//!   dropped and read anew.

mod after;
mod breaker;
mod busy;
mod cancel;
mod decide;
mod end;
pub(crate) mod flight;
pub(crate) mod inbox;
mod intake;
mod least;
mod memory;
mod purse;
mod rebuild;
mod scale;
mod sense;
mod spare;
mod start;
mod stop;
mod tend;
pub(crate) mod usage;
mod watch;
mod why;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Ctx, Error, ProjectId, Result, Timestamp, code};
use falaj_executors::ExecutorError;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::worker::Worker;
use tokio::sync::Notify;

use breaker::Breaker;
pub(crate) use end::OUT_OF_MEMORY;
pub(crate) use memory::Memory;
pub(crate) use start::Plan;
pub use why::{Start, Why};

use crate::Training;
use crate::job::store as jobs;
use crate::name::{StartId, TaskId};
use crate::queue::tree::QueueKey;

/// The longest pause between two passes.
const EVERY: Duration = Duration::from_millis(500);
/// What was in mind longer ago than this is not told to anybody.
const STALE: Duration = Duration::from_secs(30);
/// How long a pass waits for executors to answer what it has just asked them.
const PATIENCE: Duration = Duration::from_millis(250);
const NAME: &str = "training";

/// What launches and endings came to since the last pass.
#[derive(Debug, Default)]
struct Mail {
    launched: Vec<(StartId, Result<(), ExecutorError>)>,
    settled: Vec<(StartId, bool)>,
}

pub(crate) struct Live {
    memory: tokio::sync::Mutex<Option<Memory>>,
    passed: Mutex<Option<Timestamp>>,
    wake: Arc<Notify>,
    mail: Mutex<Mail>,
    busy: Arc<busy::Busy>,
    /// Engines that do not answer, by pool.
    breakers: Mutex<HashMap<usize, Breaker>>,
    /// What was last told of tasks, and when, for those who ask during a pass.
    answers: Mutex<HashMap<TaskId, (Timestamp, Why)>>,
    watched: AtomicBool,
    /// Whether somebody waits for what executors tell.
    active: AtomicBool,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            memory: tokio::sync::Mutex::new(None),
            passed: Mutex::new(None),
            wake: Arc::default(),
            mail: Mutex::default(),
            busy: Arc::default(),
            breakers: Mutex::default(),
            answers: Mutex::default(),
            watched: AtomicBool::new(false),
            active: AtomicBool::new(false),
        }
    }
}

impl Live {
    /// Lets the next pass be at once.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn mail(&self) -> std::sync::MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breakers(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Breaker>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when the engine of a pool does not answer, and what it said last.
    pub(crate) fn away(&self, pool: usize) -> Option<(Timestamp, String)> {
        self.breakers().get(&pool)?.away().cloned()
    }

    /// What is in mind, unless a pass has it for long.
    async fn mind(&self) -> Option<tokio::sync::MutexGuard<'_, Option<Memory>>> {
        tokio::time::timeout(PATIENCE, self.memory.lock()).await.ok()
    }

    /// What a queue holds, if this server schedules.
    pub(crate) async fn held(&self, key: &QueueKey) -> Option<crate::queue::Held> {
        let memory = self.mind().await?;
        let memory = memory.as_ref()?;
        let id = memory.tree.id(key)?;
        let held = memory.scheduler.held(id)?;
        Some(crate::queue::Held::of(&held, memory.scheduler.shares(id)?))
    }
}

/// The worker that schedules.
pub(crate) fn worker(training: &Training) -> Worker {
    let wake = training.live().wake.clone();
    let training = training.clone();
    Worker::new(NAME, EVERY, move || {
        let training = training.clone();
        async move { training.pass().await }
    })
    .woken_by(wake)
}

/// The worker that forgets old decisions.
pub(crate) fn forgetter(training: &Training) -> Worker {
    let training = training.clone();
    Worker::new("training-decisions", Duration::from_mins(10), move || {
        let training = training.clone();
        async move {
            const AT_ONCE: usize = 1000;
            let before = training.db().now() - training.config().keep_decisions.get();
            loop {
                let trim = move |tx: &mut Tx<'_>| jobs::trim_decisions(tx, before, AT_ONCE);
                if training.db().write(trim).await? < AT_ONCE as u64 {
                    return Ok(());
                }
            }
        }
    })
}

impl Training {
    /// One pass. Only the one who holds the worker's lease may call it.
    pub async fn pass(&self) -> Result<()> {
        let mut guard = self.live().memory.lock().await;
        let mut memory = match guard.take() {
            Some(memory) => memory,
            None => self.begin_anew().await?,
        };
        self.take_in(&mut memory).await?;
        self.hear_of_launches(&mut memory).await?;
        self.observe(&mut memory).await?;
        self.tend(&mut memory).await?;
        self.sense(&mut memory).await?;
        self.hold_those_without_money(&mut memory, self.db().now());
        self.scale(&mut memory).await?;
        self.stop_those_due(&mut memory).await?;
        self.decide(&mut memory).await?;
        self.see_to_ends(&mut memory);
        self.see_to_runs(&mut memory).await?;
        let active = !memory.flights.is_empty();
        self.live().active.store(active, Ordering::Relaxed);
        *self.live().passed.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.db().now());
        *guard = Some(memory);
        drop(guard);
        self.watch_executors();
        Ok(())
    }

    /// Until when the engine of a pool is left alone. This machine never is: asking it costs nobody
    /// anything.
    fn left_alone(&self, pool: usize, now: Timestamp) -> Option<Timestamp> {
        if self.pool_list().list.get(pool).is_some_and(|pool| pool.is_server) {
            return None;
        }
        self.live().breakers().get(&pool)?.until(now)
    }

    /// Writes, if nobody else schedules by now.
    async fn commit<T, F>(&self, memory: &Memory, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let holder = memory.holder.clone();
        let guarded = move |tx: &mut Tx<'_>| {
            tx.lock_shared(rebuild::LOCK)?;
            if !inbox::leads(tx, &holder)? {
                return Err(Error::new(&code::CONFLICT, "another server schedules by now"));
            }
            work(tx)
        };
        self.db().write(guarded).await
    }

    async fn project(
        &self,
        known: &mut HashMap<ProjectId, Arc<Project>>,
        id: ProjectId,
    ) -> Result<Arc<Project>> {
        if let Some(project) = known.get(&id) {
            return Ok(project.clone());
        }
        let ctx = Ctx::system(NAME);
        let project = Arc::new(self.tenancy().project_by_id(&ctx, id).await?);
        known.insert(id, project.clone());
        Ok(project)
    }

    /// Wakes the next pass when an executor may have something to tell. One task for each pool, for as
    /// long as this service is there.
    fn watch_executors(&self) {
        if self.live().watched.swap(true, Ordering::Relaxed) {
            return;
        }
        for at in 0..self.pool_list().list.len() {
            let weak = self.downgrade();
            tokio::spawn(async move {
                loop {
                    let Some(training) = weak.upgrade() else { return };
                    if !training.live().active.load(Ordering::Relaxed) {
                        drop(training);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                    let executor = training.pool_list().list[at].executor.clone();
                    drop(training);
                    let wait = move || executor.wait(Duration::from_millis(500));
                    if tokio::task::spawn_blocking(wait).await.is_err() {
                        return;
                    }
                    let Some(training) = weak.upgrade() else { return };
                    training.live().wake();
                    // A pass takes longer than this; waking it more often would change nothing.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
    }
}

/// What is told to other domains about a task.
pub(crate) fn told(task: TaskId, state: crate::job::State) -> serde_json::Value {
    serde_json::json!({ "job": task.job, "task": task.task, "state": state })
}
