//! Beginning anew: everything that is not over, from the database.

use std::collections::{HashMap, HashSet};

use falaj_base::{Result, Timestamp};
use falaj_scheduler::{Event, JobId as Number, Placed, Restored, RunningAt};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::flight::{Flight, Launched, Purpose};
use super::inbox;
use super::memory::{Memory, by_number_of};
use crate::Training;
use crate::checkpoint::store as checkpoints;
use crate::job::store::{self as jobs, StartRow};
use crate::job::{Job, State, millis};
use crate::name::TaskId;
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
            let page = self.db().read(move |tx| load(tx, &from)).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.id.to_string();
            for (job, tasks) in page {
                self.recall(&mut memory, job, tasks, &flying, now).await?;
            }
        }
        for start in open.iter().filter(|start| start.open == 1) {
            memory.ended.insert(start.id);
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
        let project = self.project(&mut memory.projects, job.project).await?;
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
        for task in (0..count).filter(|task| !over.contains(task)) {
            let start = flying.get(&TaskId { job: id, task }).copied();
            if start.is_none() && cancelled {
                continue;
            }
            let Some(spec) = memory.spec(id, task, self.pool_list(), millis(now))? else {
                self.give_up(memory, id, task, "its queue or its pool is not there any more")
                    .await?;
                continue;
            };
            let number = spec.id;
            let running = match start {
                Some(start) => Some(self.board(memory, start, number).await?),
                None => None,
            };
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
                saves_until: purpose.is_some().then(|| self.db().now()),
                notified: None,
                told: false,
                then: None,
                stacks: None,
                launches: 0,
            },
        );
        Ok(RunningAt { placement, since: millis(start.shown.started_at), saved })
    }
}

fn load(tx: &mut Tx<'_>, after: &str) -> Result<Loaded> {
    let page = jobs::live(tx, after, PAGE)?;
    page.into_iter()
        .map(|job| Ok((jobs::tasks(tx, job.id)?, job)))
        .map(|pair| pair.map(|(tasks, job)| (job, tasks)))
        .collect()
}
