//! Reading what starts use, beside the pass, and acting on it: see [`crate::telemetry`].
//!
//! Must hold: no pass waits for a reading. Samples and summaries are written together, as often as the
//! settings say; what a start used last is written once it has ended.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use falaj_base::{Ctx, Result, Timestamp};
use falaj_executors::gpu::{Gpu, Gpus};
use falaj_executors::{AttemptId, Executor};
use falaj_scheduler::Event;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::metric::Point;
use falaj_tracking::run::{Batch, LoggedMetric};
use serde_json::json;

use super::busy::{Task, Work};
use super::flight::{Flight, Launched, Purpose};
use super::memory::{LiveJob, Memory};
use crate::job::store as jobs;
use crate::job::{State, millis, resource};
use crate::name::{StartId, TaskId};
use crate::telemetry::board::{Board, Entry};
use crate::telemetry::config::{IdleAction, IdlePolicy, Whom};
use crate::telemetry::idle::{About, Verdict, judge};
use crate::telemetry::names;
use crate::telemetry::reading::{Has, Reading, Sample, of_start, sample};
use crate::telemetry::store::{self, Kept};
use crate::telemetry::summary::Summary;
use crate::telemetry::watching::{Watched, Watching};
use crate::{JOB_RUN, Training};

/// Metrics of one call at most, and starts that are written in one transaction.
const BATCH: usize = 500;
const AT_ONCE: usize = 500;
/// Starts whose samples are on their way into their runs at most.
const LOGGING: usize = 10_000;

/// A start that is asked about.
struct Ask {
    id: StartId,
    attempt: AttemptId,
    /// Its GPUs on this machine, and whether it shares them.
    gpus: Vec<u32>,
    shared: bool,
}

impl Memory {
    /// Takes a task out of line until then, as it gave up its nodes for being idle.
    pub(super) fn set_aside(&mut self, task: TaskId, now: Timestamp) -> bool {
        let live = self.jobs.get(&task.job);
        let until = live.and_then(|live| live.tasks.get(&task.task)?.1.aside_until);
        let (Some(until), Some(number)) = (until, self.number(task)) else { return false };
        self.aside.insert((until, task));
        self.scheduler.apply(millis(now), Event::Cancelled(number));
        true
    }
}

impl Training {
    pub(super) async fn sense(&self, memory: &mut Memory) -> Result<()> {
        let config = &self.config().telemetry;
        let now = self.db().now();
        self.line_up_again(memory, now)?;
        if !config.enabled {
            return Ok(());
        }
        if !memory.watching.loaded {
            self.recall_summaries(memory).await?;
        }
        if self.hear_readings(memory).await {
            self.judge_idleness(memory, now).await?;
        }
        if memory.watching.asked.is_none_or(|asked| now.since(asked) >= config.every.get()) {
            memory.watching.asked = Some(now);
            self.ask_for_readings(memory, now)?;
        }
        self.write_summaries(memory, now).await
    }

    /// Summaries of starts that go on; those of starts that ended meanwhile are closed.
    async fn recall_summaries(&self, memory: &mut Memory) -> Result<()> {
        // Whoever scheduled here before may have left some that ended meanwhile.
        self.board().keep(|id| memory.flights.contains_key(id));
        let open = self.db().read(store::open).await?;
        let mut over = Vec::new();
        for (id, project, idle, summary) in open {
            if memory.flights.contains_key(&id) {
                memory.watching.starts.insert(id, Watched::new(summary, idle));
            } else {
                over.push(Kept { id, project, open: false, idle_since: None, summary });
            }
        }
        for some in over.chunks(AT_ONCE) {
            let some = some.to_vec();
            self.commit(memory, move |tx| store::put(tx, &some)).await?;
        }
        memory.watching.loaded = true;
        Ok(())
    }

    /// Asks each pool, unless it has not answered yet, about those that were not asked about for the
    /// longest time.
    fn ask_for_readings(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let most = self.config().telemetry.max_starts;
        let mut by_pool: BTreeMap<usize, Vec<(Option<Timestamp>, StartId)>> = BTreeMap::new();
        for flight in memory.flights.values().filter(|flight| runs(flight)) {
            let asked = memory.watching.starts.get(&flight.id).and_then(|it| it.asked);
            by_pool.entry(flight.pool).or_default().push((asked, flight.id));
        }
        // GPUs of this machine are looked at even if nobody runs there.
        let pools = self.pool_list().list.iter().enumerate();
        for (at, _) in pools.filter(|(_, pool)| pool.is_server) {
            by_pool.entry(at).or_default();
        }
        for (at, mut starts) in by_pool {
            let Some(pool) = self.pool_list().list.get(at) else { continue };
            if memory.watching.asking.contains_key(&at) {
                continue;
            }
            starts.sort_unstable();
            starts.truncate(most);
            let mut asks = Vec::with_capacity(starts.len());
            for (_, id) in starts {
                asks.push(self.ask_about(memory, id, pool.is_server)?);
                let has = memory.jobs.get(&id.task.job).map(|live| has(live, &memory.flights[&id]));
                let new = || Watched::new(Summary::new(has.unwrap_or_default()), false);
                memory.watching.starts.entry(id).or_insert_with(new).asked = Some(now);
            }
            let (executor, clock) = (pool.executor.clone(), self.db().clock().clone());
            let gpus = if pool.is_server { self.board().gpus() } else { None };
            if asks.is_empty() && gpus.is_none() {
                continue;
            }
            let training = self.clone();
            let asking = tokio::task::spawn_blocking(move || {
                read_all(training.board(), executor.as_ref(), gpus.as_deref(), asks, || clock.now())
            });
            memory.watching.asking.insert(at, asking);
        }
        Ok(())
    }

    fn ask_about(&self, memory: &Memory, id: StartId, here: bool) -> Result<Ask> {
        let mut gpus = Vec::new();
        let mut shared = false;
        if let Some(flight) = memory.flights.get(&id).filter(|_| here) {
            for at in &flight.nodes {
                let node = self.pool_list().node_named(flight.pool, &at.node);
                let first = u32::from(node.map_or(0, |node| node.first_gpu));
                gpus.extend(
                    (0..16).filter(|bit| at.devices >> bit & 1 == 1).map(|bit| first + bit),
                );
            }
            let live = memory.jobs.get(&id.task.job);
            shared = live.is_some_and(|live| live.job.definition.resources.gpu_fraction.is_some());
        }
        Ok(Ask { id, attempt: id.outside()?, gpus, shared })
    }

    /// Takes in what pools have answered by now; false if nothing came.
    async fn hear_readings(&self, memory: &mut Memory) -> bool {
        let mut heard = Vec::new();
        for (pool, asking) in std::mem::take(&mut memory.watching.asking) {
            if !asking.is_finished() {
                memory.watching.asking.insert(pool, asking);
                continue;
            }
            match asking.await {
                Ok(readings) => heard.extend(readings),
                Err(error) => tracing::warn!(pool, %error, "what starts use was not read"),
            }
        }
        if heard.is_empty() {
            return false;
        }
        for (id, reading) in heard {
            let Some(flight) = memory.flights.get(&id) else { continue };
            let Some(live) = memory.jobs.get(&id.task.job) else { continue };
            let policy = self.policy_of(live, flight);
            let Some(watched) = memory.watching.starts.get_mut(&id) else { continue };
            // A start that grew or shrank goes on as another one, so this does not change.
            let sample = sample(watched.before.as_ref(), &reading, &watched.summary.has);
            watched.before = Some(reading);
            watched.summary.add(sample.clone(), policy.below, policy.cpu);
            watched.hear(sample);
            let idle_since = watched.summary.idle_since.filter(|_| watched.idle);
            let entry = Entry {
                tenant: live.project.tenant.to_string(),
                project: live.project.name.to_string(),
                summary: Arc::new(watched.summary.clone()),
                idle_since,
            };
            self.board().show(id, entry);
        }
        true
    }

    pub(super) fn policy_of(&self, live: &LiveJob, flight: &Flight) -> IdlePolicy {
        let pool = self.pool_list().list.get(flight.pool);
        let whom = Whom {
            pool: pool.map_or("", |pool| pool.name.as_str()),
            tenant: live.project.tenant.as_str(),
            queue: live.job.definition.queue.as_ref().map_or("", |queue| queue.as_str()),
        };
        self.config().telemetry.policy(&whom)
    }

    async fn judge_idleness(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let mut told = Vec::new();
        for (id, watched) in &memory.watching.starts {
            let Some(flight) = memory.flights.get(id) else { continue };
            let Some(live) = memory.jobs.get(&id.task.job) else { continue };
            let policy = self.policy_of(live, flight);
            let about = About {
                started: flight.since,
                protected: !live.job.definition.reclaim,
                leaving: flight.purpose.is_some(),
            };
            let verdict = judge(&watched.summary, about, &policy, now);
            match (verdict, watched.idle) {
                (Verdict::Busy, false)
                | (Verdict::Idle { action: IdleAction::Report, .. }, true) => {}
                _ => told.push((*id, verdict, policy)),
            }
        }
        for (id, verdict, policy) in told {
            self.tell_idleness(memory, id, verdict, &policy, now).await?;
        }
        Ok(())
    }

    /// Notes that a start is idle, or is not any more; one that its rule takes its nodes from is told
    /// to leave them.
    async fn tell_idleness(
        &self,
        memory: &mut Memory,
        id: StartId,
        verdict: Verdict,
        policy: &IdlePolicy,
        now: Timestamp,
    ) -> Result<()> {
        let Some(watched) = memory.watching.starts.get_mut(&id) else { return Ok(()) };
        let first = !watched.idle;
        let Verdict::Idle { since, action } = verdict else {
            (watched.idle, watched.changed) = (false, true);
            return self
                .write_idleness(memory, id, "job.busy", json!({ "job": id.task.job }))
                .await;
        };
        watched.idle = true;
        watched.changed = true;
        let (gpus, mean) = (watched.summary.has.gpus, watched.summary.gpu.mean());
        if first {
            let event = json!({
                "job": id.task.job, "task": id.task.task, "attempt": id.attempt, "since": since,
                "gpus": gpus, "mean_utilization": mean, "below": policy.below,
                "action": action,
            });
            self.write_idleness(memory, id, "job.idle", event).await?;
        }
        if action != IdleAction::Reclaim {
            return Ok(());
        }
        let seconds = now.since(since).as_secs();
        tracing::info!(start = %id, seconds, "an idle start gives up its nodes");
        let started = memory.flights.get(&id).map(|flight| flight.since);
        let live = memory.jobs.get_mut(&id.task.job);
        if let Some((_, row)) = live.and_then(|live| live.tasks.get_mut(&id.task.task)) {
            // One that worked for a while is where it was the first time.
            let worked = started.is_some_and(|at| since.since(at) >= policy.after.get());
            row.reclaims = if worked { 1 } else { row.reclaims.saturating_add(1) };
        }
        let detail = json!({
            "why": format!("it used less than {} % of what it has for {seconds} seconds", policy.below),
            "idle_since": since, "pause_seconds": policy.pause.get().as_secs(),
        });
        self.end_early(memory, id.task, Purpose::Reclaim, detail).await
    }

    async fn write_idleness(
        &self,
        memory: &Memory,
        id: StartId,
        event: &'static str,
        data: serde_json::Value,
    ) -> Result<()> {
        let Some(live) = memory.jobs.get(&id.task.job) else { return Ok(()) };
        let Some(watched) = memory.watching.starts.get(&id) else { return Ok(()) };
        let ctx = Ctx::system(super::NAME);
        let of = resource(&live.project, &id.task.job.to_string(), false);
        ctx.authorize(&JOB_RUN, &of).await?;
        let kept = kept_of(live, id, watched, true);
        let write = move |tx: &mut Tx<'_>| {
            store::put(tx, std::slice::from_ref(&kept))?;
            let change =
                Change::new(&JOB_RUN, &of).event(event, &data).detail("task", id.task.task);
            tx.record(&ctx, change)
        };
        self.commit(memory, write).await
    }

    /// Writes what is new, when it is time to; of starts that have ended, at once.
    async fn write_summaries(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let every = self.config().telemetry.write_every.get();
        let due = memory.watching.written.is_none_or(|written| now.since(written) >= every);
        let flights = &memory.flights;
        let over: HashSet<StartId> =
            memory.watching.starts.keys().filter(|id| !flights.contains_key(id)).copied().collect();
        if due {
            memory.watching.written = Some(now);
        }
        if !due && over.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::new();
        let mut samples = Vec::new();
        let busy = &self.live().busy;
        let has_room = busy.logging() < LOGGING;
        let Watching { starts, .. } = &mut memory.watching;
        for (id, watched) in starts.iter_mut() {
            let ended = over.contains(id);
            if !(ended || (due && watched.changed)) {
                continue;
            }
            watched.changed = false;
            // While the last ones are on their way these wait, and they are few.
            let goes = ended || (has_room && !busy.is(Task::Metrics(*id)));
            let waiting = if goes { std::mem::take(&mut watched.waiting) } else { Vec::new() };
            if watched.summary.last.is_some() {
                rows.push((*id, watched.clone(), ended));
                samples.push((*id, waiting, watched.summary.has.memory_bytes));
            }
        }
        if !over.is_empty() {
            starts.retain(|id, _| !over.contains(id));
            self.board().keep(|id| !over.contains(id));
        }
        let mut kept = Vec::with_capacity(rows.len());
        for (id, watched, ended) in rows {
            let project = match memory.jobs.get(&id.task.job) {
                Some(live) => Some(live.job.project),
                // It is over with its last start, and out of mind.
                None => self
                    .db()
                    .read(move |tx| jobs::by_id(tx, id.task.job))
                    .await?
                    .map(|it| it.project),
            };
            let Some(project) = project else { continue };
            let idle_since = watched.summary.idle_since.filter(|_| watched.idle && !ended);
            kept.push(Kept { id, project, open: !ended, idle_since, summary: watched.summary });
        }
        for some in kept.chunks(AT_ONCE) {
            let some = some.to_vec();
            self.commit(memory, move |tx| store::put(tx, &some)).await?;
        }
        if self.config().telemetry.log_metrics {
            self.log_soon(samples);
        }
        Ok(())
    }

    /// Lets samples become metrics of their runs, beside the pass. What fails is lost: the summary has
    /// what matters of it.
    fn log_soon(&self, samples: Vec<(StartId, Vec<Sample>, u64)>) {
        let busy = &self.live().busy;
        let permits = busy.permits(Work::Metrics);
        let mut room = LOGGING.saturating_sub(busy.logging());
        for (id, samples, memory_bytes) in samples {
            if samples.is_empty() || room == 0 {
                continue;
            }
            room -= 1;
            // The last ones of a start go even if some are on their way.
            let begun = busy.begin(Task::Metrics(id));
            let (training, permits) = (self.clone(), permits.clone());
            tokio::spawn(async move {
                let permit = permits.acquire_owned().await;
                if let Err(error) = training.log_samples(id, &samples, memory_bytes).await {
                    let error = error.chain();
                    tracing::debug!(start = %id, error, "what a start uses was not logged");
                }
                drop((permit, begun));
            });
        }
    }

    async fn log_samples(&self, id: StartId, samples: &[Sample], memory_bytes: u64) -> Result<()> {
        let read =
            move |tx: &mut Tx<'_>| Ok((jobs::by_id(tx, id.task.job)?, jobs::task(tx, id.task)?));
        let (Some(job), task) = self.db().read(read).await? else { return Ok(()) };
        let of_task = task.and_then(|(_, row)| row.run);
        let run = if job.tasks.count > 1 { of_task } else { job.run_id };
        let Some(run) = run else { return Ok(()) };
        let ctx = Ctx::system(super::NAME);
        let project = self.tenancy().project_by_id(&ctx, job.project).await?;
        let call = self.places().call(&ctx, &project.tenant, &project.name).await?;
        let mut metrics = Vec::new();
        for sample in samples {
            let at = sample.at.micros() / 1000;
            // Seconds since it was submitted: they grow over all its starts.
            let since = sample.at.since(job.created_at).as_secs();
            let step = i64::try_from(since).unwrap_or(i64::MAX);
            for (key, value) in names::metrics(sample, memory_bytes) {
                let point = Point::new(at, step, value);
                metrics.push(LoggedMetric { key, point, model: None, dataset: None });
            }
        }
        for some in metrics.chunks(BATCH) {
            let batch = Batch { metrics: some.to_vec(), ..Batch::default() };
            self.tracking().log(&call, &run, batch).await?;
        }
        Ok(())
    }

    /// Tasks that gave up their nodes for being idle are in line again after a while.
    fn line_up_again(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        while let Some((_, task)) = memory.aside.first().copied().filter(|(until, _)| *until <= now)
        {
            memory.aside.pop_first();
            let Some(live) = memory.jobs.get_mut(&task.job) else { continue };
            if live.state_of(task.task) != State::Preempted {
                continue;
            }
            if let Some(held) = &mut live.held {
                held.tasks.insert(task.task);
                continue;
            }
            self.let_go_tasks(memory, task.job, &[task.task], now)?;
        }
        Ok(())
    }
}

fn runs(flight: &Flight) -> bool {
    matches!(flight.launched, Launched::Yes(_))
        && matches!(flight.state, State::Running | State::Checkpointing)
}

/// What a start has, over all its nodes.
#[allow(clippy::cast_precision_loss, reason = "a start has far fewer than 2^52 nodes")]
fn has(live: &LiveJob, flight: &Flight) -> Has {
    let resources = &live.job.definition.resources;
    let nodes = flight.nodes.len().max(1);
    let gpus = resources.gpu_fraction.unwrap_or_else(|| f64::from(resources.gpus));
    Has {
        cores: resources.cpu * nodes as f64,
        memory_bytes: resources.memory.bytes().saturating_mul(nodes as u64),
        gpus: gpus * nodes as f64,
    }
}

fn kept_of(live: &LiveJob, id: StartId, watched: &Watched, open: bool) -> Kept {
    Kept {
        id,
        project: live.job.project,
        open,
        idle_since: watched.summary.idle_since.filter(|_| watched.idle),
        summary: watched.summary.clone(),
    }
}

/// Reads all that is asked about. Blocking.
fn read_all(
    board: &Board,
    executor: &dyn Executor,
    gpus: Option<&dyn Gpus>,
    asks: Vec<Ask>,
    now: impl Fn() -> Timestamp,
) -> Vec<(StartId, Reading)> {
    let devices = gpus.map(Gpus::read).unwrap_or_default();
    let mut found = Vec::with_capacity(asks.len());
    for ask in asks {
        // One that ended meanwhile, or whose executor is away, is not there.
        let Ok(usage) = executor.usage(&ask.attempt) else { continue };
        let own: Vec<&Gpu> = devices.iter().filter(|gpu| ask.gpus.contains(&gpu.index)).collect();
        let processes = if own.is_empty() {
            Vec::new()
        } else {
            executor.processes(&ask.attempt).unwrap_or_default()
        };
        let gpus: Vec<_> =
            own.into_iter().map(|gpu| of_start(gpu, &processes, ask.shared)).collect();
        // An engine that tells nothing leaves nothing to keep.
        if usage.is_none() && gpus.is_empty() {
            continue;
        }
        found.push((ask.id, Reading { at: now(), usage, gpus }));
    }
    if gpus.is_some() {
        board.saw(devices);
    }
    found
}
