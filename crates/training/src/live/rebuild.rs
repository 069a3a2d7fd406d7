//! Beginning anew: everything that is not over, from the database.
//!
//! Must hold: nothing of one job keeps the others from going on. What was taken in once and would not
//! be any more (a driver was not loaded, a quota is smaller) waits, and is told why; what runs goes on.

use std::collections::{HashMap, HashSet};

use falaj_base::{Result, Timestamp};
use falaj_executors::Notice;
use falaj_scheduler::{Event, JobId as Number, JobSpec, Placed, Restored, RunningAt};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::flight::{Flight, Launched, Purpose};
use super::inbox;
use super::memory::{Ending, Held, Memory, by_number_of};
use crate::Training;
use crate::checkpoint::store as checkpoints;
use crate::job::store::{self as jobs, StartRow};
use crate::job::{Job, State, millis};
use crate::name::{JobId, TaskId};
use crate::queue::store as queues;

/// Held shared by every write of the one who schedules, and alone by whoever becomes that.
pub(super) const LOCK: &str = "training-leader";

/// Jobs that are read at a time.
const PAGE: usize = 500;

type Loaded = Vec<(Job, Vec<(u32, State, jobs::TaskRow)>)>;

impl Training {
    pub(super) async fn begin_anew(&self) -> Result<Memory> {
        let holder = Uuid::now_v7().simple().to_string();
        let name = holder.clone();
        let lead = move |tx: &mut Tx<'_>| {
            tx.lock(LOCK)?;
            inbox::lead(tx, &name)
        };
        self.db().write(lead).await?;
        let mut memory = Memory::new(holder, self.config(), self.pool_list())?;
        let now = self.db().now();
        let kept = self.db().read(queues::all).await?;
        for event in memory.tree.update(&kept, self.pool_list()) {
            memory.scheduler.apply(millis(now), event);
        }
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
                self.recall(&mut memory, job, tasks, &flying, now).await?;
            }
        }
        for start in open.iter().filter(|start| start.open == 1) {
            let pool = self.pool_list().by_name(start.shown.pool.as_str()).unwrap_or(usize::MAX);
            memory.ended.insert(start.id, Ending::at(pool));
        }
        let waiting = memory.scheduler.not_running();
        let flights = memory.flights.len();
        tracing::info!(waiting, running = flights, "scheduling jobs");
        Ok(memory)
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
        let live = memory.add(job, project);
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
                Some(start) => Some(self.board(memory, start, number).await?),
                None => None,
            };
            let Some(live) = memory.jobs.get_mut(&id) else { continue };
            if let Some(held) = live.held.as_mut().filter(|_| running.is_none()) {
                held.tasks.insert(task);
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
            live.held = Some(Held { why, tasks: std::collections::BTreeSet::new() });
        }
        Ok(spec)
    }

    /// Takes a start in that may be running.
    async fn board(
        &self,
        memory: &mut Memory,
        start: &StartRow,
        number: Number,
    ) -> Result<RunningAt> {
        let pools = self.pool_list();
        let pool = pools.by_name(start.shown.pool.as_str()).unwrap_or(usize::MAX);
        let placement: Vec<Placed> =
            by_number_of(&start.shown.nodes, pool, pools).unwrap_or_default();
        let purpose = start.purpose.as_deref().and_then(Purpose::parse);
        let task = start.id.task;
        let saved = self.db().read(move |tx| checkpoints::last_whole(tx, task)).await?;
        let saved = saved.map_or(0, |saved| millis(saved.whole_at));
        let now = self.db().now();
        // How long ago it was asked to save its work is not known: it has its time once more.
        let is_saving = purpose.is_some() && start.shown.state == State::Checkpointing;
        let grace = self.config().checkpoint_grace.get();
        if is_saving {
            self.pass_on(pool, start.id, Notice::Checkpoint);
        }
        memory.flights.insert(
            start.id,
            Flight {
                id: start.id,
                number,
                pool,
                world: start.shown.world_size,
                state: start.shown.state,
                purpose,
                nodes: start.shown.nodes.clone(),
                launched: Launched::Unknown,
                since: start.shown.started_at,
                saves_until: purpose.map(|_| if is_saving { now + grace } else { now }),
                notified: is_saving.then_some(now),
                told: false,
                tell_at: None,
                then: None,
                stacks: None,
                launches: 0,
            },
        );
        Ok(RunningAt { placement, since: millis(start.shown.started_at), saved })
    }
}

fn load(tx: &mut Tx<'_>, after: &str) -> Result<(Loaded, Option<String>)> {
    let (page, last) = jobs::live(tx, after, PAGE)?;
    let with_tasks = |job: Job| Ok((jobs::tasks(tx, job.id)?, job));
    let page = page.into_iter().map(with_tasks).map(|it| it.map(|(tasks, job)| (job, tasks)));
    Ok((page.collect::<Result<Loaded>>()?, last))
}
