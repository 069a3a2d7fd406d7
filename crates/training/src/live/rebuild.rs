//! Beginning anew: everything that is not over, from the database.
//!
//! Must hold: nothing of one job keeps the others from going on. What was taken in once and would not
//! be any more (a driver was not loaded, a quota is smaller) waits, and is told why; what runs goes on.

use std::collections::{HashMap, HashSet};

use falaj_base::{Ctx, Result, Timestamp};
use falaj_executors::Notice;
use falaj_scheduler::{Event, JobId as Number, JobSpec, Placed, Restored, RunningAt};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use uuid::Uuid;

use super::flight::{Flight, Launched, Purpose};
use super::memory::{Ending, Held, Memory, by_number_of};
use super::purse::OwnBudget;
use super::usage::Used;
use super::{inbox, usage};
use crate::budget::store as budgets;
use crate::checkpoint::store as checkpoints;
use crate::job::store::{self as jobs, StartRow};
use crate::job::{Job, State, millis, resource};
use crate::name::{JobId, StartId, TaskId};
use crate::queue::store as queues;
use crate::{JOB_RUN, Training};

/// Held shared by every write of the one who schedules, and alone by whoever becomes that.
pub(super) const LOCK: &str = "training-leader";

/// Jobs that are read at a time.
const PAGE: usize = 500;

type Loaded = Vec<(Job, jobs::Readable)>;

impl Training {
    pub(super) async fn begin_anew(&self) -> Result<Memory> {
        let holder = Uuid::now_v7().simple().to_string();
        let (name, server) = (holder.clone(), self.server_id()?.to_owned());
        let half_life = self.config().fair_share.millis();
        let lead = move |tx: &mut Tx<'_>| {
            tx.lock(LOCK)?;
            budgets::fill(tx)?;
            usage::fill(tx, half_life)?;
            inbox::lead(tx, &name, &server)
        };
        self.db().write(lead).await?;
        let mut memory = Memory::new(holder, self.config(), self.pool_list())?;
        let now = self.db().now();
        let kept = self.db().read(queues::all).await?;
        for event in memory.tree.update(&kept, self.pool_list()) {
            memory.scheduler.apply(millis(now), event);
        }
        self.recall_usage(&mut memory, now).await?;
        let open = self.db().read(jobs::open_starts).await?;
        let flying: HashMap<TaskId, &StartRow> =
            open.iter().filter(|start| start.open == 2).map(|it| (it.id.task, it)).collect();
        let mut after = String::new();
        loop {
            let from = after.clone();
            let (page, last) = self.db().read(move |tx| load(tx, &from)).await?;
            let Some(last) = last else { break };
            after = last;
            for (job, tasks) in page {
                match tasks {
                    Ok(tasks) => self.recall(&mut memory, job, tasks, &flying, now).await?,
                    Err(why) => self.park(&mut memory, job, &why, &open).await?,
                }
            }
        }
        for start in open.iter().filter(|start| start.open == 1) {
            let pool = self.pool_list().by_name(start.shown.pool.as_str()).unwrap_or(usize::MAX);
            memory.ended.insert(start.id, Ending::at(pool));
        }
        self.read_nodes(&mut memory).await?;
        self.read_budgets(&mut memory).await?;
        let waiting = memory.scheduler.not_running();
        let flights = memory.flights.len();
        tracing::info!(waiting, running = flights, "scheduling jobs");
        Ok(memory)
    }

    /// Ends a job of which nobody can tell how far it is.
    async fn park(
        &self,
        memory: &mut Memory,
        job: Job,
        why: &str,
        open: &[StartRow],
    ) -> Result<()> {
        tracing::error!(job = %job.id, why, "the tasks of a job cannot be read");
        let ctx = Ctx::system(super::NAME);
        let project = self.project(&mut memory.projects, job.project).await?;
        let of = resource(&project, &job.id.to_string(), false);
        ctx.authorize(&JOB_RUN, &of).await?;
        let starts = open.iter().filter(|start| start.id.task.job == job.id && start.open == 2);
        let starts: Vec<(StartId, u64, [u64; 3], Timestamp)> = starts
            .map(|start| (start.id, start.price, start.holds, start.shown.started_at))
            .collect();
        for (id, ..) in &starts {
            let row = open.iter().find(|start| start.id == *id);
            let pool = row.and_then(|row| self.pool_list().by_name(row.shown.pool.as_str()));
            memory.ended.insert(*id, Ending::at(pool.unwrap_or(usize::MAX)));
        }
        let reason = format!("what is kept of its tasks cannot be read: {why}");
        let fading = self.fading();
        let write = move |tx: &mut Tx<'_>| {
            let now = tx.now();
            let mut bill = budgets::Bill::default();
            let mut used = Used::new(fading, now);
            let queue = job.definition.queue.as_ref().map_or("", |name| name.as_str());
            for (id, price, holds, since) in &starts {
                let ended = jobs::Ended {
                    state: State::Failed,
                    ending: reason.clone(),
                    exit_code: None,
                    isolation: None,
                    cpu_seconds: None,
                    peak_memory: None,
                    stacks: None,
                };
                if jobs::end_start(tx, *id, now, &ended)? {
                    bill.add((job.tenant, job.project), *price, (*since, now));
                    used.add((job.tenant, job.project, queue.to_owned()), *holds, (*since, now));
                }
            }
            bill.pay(tx)?;
            used.keep(tx)?;
            jobs::fail_tasks(tx, job.id)?;
            let mut tally = job.tasks;
            tally.failed += tally.count.saturating_sub(tally.over());
            jobs::progress(tx, job.id, (State::Failed, &tally), Some(&reason))?;
            inbox::runs_are_open(tx, job.id)?;
            let first = TaskId { job: job.id, task: 0 };
            let change = Change::new(&JOB_RUN, &of)
                .event("job.ended", &super::told(first, State::Failed))
                .detail("why", &reason);
            tx.record(&ctx, change)
        };
        self.commit(memory, write).await
    }

    /// Takes one job in as it was left.
    async fn recall(
        &self,
        memory: &mut Memory,
        job: Job,
        tasks: Vec<(u32, State, jobs::TaskRow)>,
        flying: &HashMap<TaskId, &StartRow>,
        now: Timestamp,
    ) -> Result<()> {
        let project = match self.project(&mut memory.projects, job.project).await {
            Err(error) if !error.kind().is_ours() => {
                tracing::error!(job = %job.id, error = error.chain(), "a job has no project");
                return Ok(());
            }
            found => found?,
        };
        let (id, count, cancelled) = (job.id, job.tasks.count, job.cancel_requested_at.is_some());
        let submitted = millis(job.created_at);
        let spent = match job.definition.budget {
            Some(_) => self.db().read(move |tx| budgets::spent_by_job(tx, id)).await?,
            None => 0,
        };
        let live = memory.add(job, project, None);
        live.budget = OwnBudget::of(&live.job, spent);
        let mut over = HashSet::new();
        for (task, state, row) in tasks {
            if state.is_over() {
                over.insert(task);
            } else {
                live.tasks.insert(task, (state, row));
            }
        }
        let spec = self.spec_again(memory, id, now)?;
        for task in (0..count).filter(|task| !over.contains(task)) {
            let start = flying.get(&TaskId { job: id, task }).copied();
            if start.is_none() && cancelled {
                continue;
            }
            let Some(number) = memory.number(TaskId { job: id, task }) else { continue };
            let running = match start {
                Some(start) => Some(self.take_aboard(memory, start, number).await?),
                None => None,
            };
            let Some(live) = memory.jobs.get_mut(&id) else { continue };
            if let Some(held) = live.held.as_mut().filter(|_| running.is_none()) {
                held.tasks.insert(task);
                continue;
            }
            let aside = live.tasks.get(&task).and_then(|(_, row)| row.aside_until);
            if let Some(until) = aside.filter(|_| running.is_none()) {
                memory.aside.insert((until, TaskId { job: id, task }));
                continue;
            }
            let Some(mut spec) = spec.clone() else { continue };
            spec.id = number;
            let ran = memory.jobs.get(&id).and_then(|live| live.tasks.get(&task));
            let ran = ran.map_or(0, |(_, row)| row.ran_ms);
            let restored = Restored { spec, submitted, ran, running };
            memory.scheduler.apply(millis(now), Event::Restored(Box::new(restored)));
        }
        if cancelled {
            self.cancel(memory, id).await?;
        }
        Ok(())
    }

    /// What the scheduler is told of each task of a job. Of one that it would not take in any more it is
    /// told what runs: its nodes are not free.
    fn spec_again(
        &self,
        memory: &mut Memory,
        id: JobId,
        now: Timestamp,
    ) -> Result<Option<JobSpec>> {
        let (spec, why) = match self.spec_of(memory, id, millis(now))? {
            Ok(spec) => match memory.scheduler.check_restored(&spec) {
                Ok(()) => return Ok(Some(spec)),
                Err(why) => (Some(spec), self.in_words(memory, id, &why)),
            },
            Err(why) => (memory.spec_of_any_gpu(id, self.pool_list(), millis(now))?, why),
        };
        tracing::warn!(job = %id, why, "a job that was taken in before is held");
        if let Some(live) = memory.jobs.get_mut(&id) {
            live.held = Some(Held::for_good(why));
        }
        Ok(spec)
    }

    /// Takes a start in that may be running.
    async fn take_aboard(
        &self,
        memory: &mut Memory,
        start: &StartRow,
        number: Number,
    ) -> Result<RunningAt> {
        let pools = self.pool_list();
        let pool = pools.by_name(start.shown.pool.as_str()).unwrap_or(usize::MAX);
        let me = self.server_id()?;
        let elsewhere = start.server.as_ref().is_some_and(|server| server != me);
        // What runs on another machine of the same name takes nothing from this one.
        let placement: Vec<Placed> = if elsewhere {
            Vec::new()
        } else {
            by_number_of(&start.shown.nodes, pool, pools).unwrap_or_default()
        };
        let purpose = start.purpose.as_deref().and_then(Purpose::parse);
        let task = start.id.task;
        let saved = self.db().read(move |tx| checkpoints::last_whole(tx, task)).await?;
        let saved = saved.map_or(0, |saved| millis(saved.whole_at));
        let now = self.db().now();
        // How long ago it was asked to save its work is not known: it has its time once more.
        let is_saving =
            purpose.is_some() && start.shown.state == State::Checkpointing && !elsewhere;
        let grace = self.config().checkpoint_grace.get();
        if is_saving {
            self.pass_on(pool, start.id, Notice::Checkpoint);
        }
        let flight = Flight {
            id: start.id,
            number,
            pool,
            world: start.shown.world_size,
            price: start.price,
            state: start.shown.state,
            purpose,
            nodes: start.shown.nodes.clone(),
            launched: if elsewhere { Launched::Elsewhere } else { Launched::Unknown },
            since: start.shown.started_at,
            saves_until: purpose.map(|_| if is_saving { now + grace } else { now }),
            notified: is_saving.then_some(now),
            told: false,
            tell_at: None,
            then: None,
            stacks: None,
            launches: 0,
            waits: None,
        };
        memory.pay_from_now(&flight);
        memory.flights.insert(start.id, flight);
        Ok(RunningAt { placement, since: millis(start.shown.started_at), saved })
    }
}

fn load(tx: &mut Tx<'_>, after: &str) -> Result<(Loaded, Option<String>)> {
    let (page, last) = jobs::live(tx, after, PAGE)?;
    let with_tasks = |job: Job| Ok((jobs::tasks_if_readable(tx, job.id)?, job));
    let page = page.into_iter().map(with_tasks).map(|it| it.map(|(tasks, job)| (job, tasks)));
    Ok((page.collect::<Result<Loaded>>()?, last))
}
