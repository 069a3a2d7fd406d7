//! What the one who schedules has in mind. All of it can be found again in the database and at the
//! executors; it is dropped and made anew whenever a write fails.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use falaj_base::{ProjectId, Result, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_scheduler::order::by_name;
use falaj_scheduler::{Event, JobId as Number, Millis, Placed, Scheduler, Settings};

use super::flight::Flight;
use super::tend::Pace;
use crate::config::TrainingConfig;
use crate::job::store::TaskRow;
use crate::job::{Job, PlacedAt, State, to_spec};
use crate::name::{JobId, StartId, TaskId};
use crate::pool::Pools;
use crate::queue::tree::QueueTree;

/// A job that is not over.
#[derive(Debug)]
pub(crate) struct LiveJob {
    pub(crate) job: Job,
    pub(crate) project: Arc<Project>,
    /// The scheduler's number of its first task.
    pub(crate) first: u64,
    /// Tasks that have started and are not over.
    pub(crate) tasks: HashMap<u32, (State, TaskRow)>,
}

impl LiveJob {
    pub(crate) fn number(&self, task: u32) -> Number {
        Number(self.first + u64::from(task))
    }

    pub(crate) fn state_of(&self, task: u32) -> State {
        self.tasks.get(&task).map_or(State::Pending, |(state, _)| *state)
    }
}

/// A start that was decided and waits until others have left its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) number: Number,
    pub(crate) placement: Vec<Placed>,
    /// Starts that have to be over first.
    pub(crate) after: Vec<StartId>,
    pub(crate) borrows: bool,
}

#[derive(Debug)]
pub(crate) struct Memory {
    /// Who we are, as the database knows the one who schedules.
    pub(crate) holder: String,
    pub(crate) scheduler: Scheduler,
    pub(crate) tree: QueueTree,
    pub(crate) jobs: HashMap<JobId, LiveJob>,
    numbers: BTreeMap<u64, JobId>,
    next: u64,
    pub(crate) flights: HashMap<StartId, Flight>,
    pub(crate) due: Vec<Due>,
    /// Ended starts whose end is to be seen to.
    pub(crate) ended: HashSet<StartId>,
    /// Those that somebody is at.
    pub(crate) settling: HashSet<StartId>,
    /// When to look again after something went wrong there.
    pub(crate) settle_again: Option<Timestamp>,
    pub(crate) projects: HashMap<ProjectId, Arc<Project>>,
    /// When checkpoints, steps and budgets were last looked at.
    pub(crate) looked: Option<Timestamp>,
    pub(crate) paces: HashMap<StartId, Pace>,
}

impl Memory {
    pub(crate) fn new(holder: String, config: &TrainingConfig, pools: &Pools) -> Result<Self> {
        let settings = Settings {
            round: u64::try_from(config.round.get().as_millis()).unwrap_or(300_000).max(1000),
            ..Settings::default()
        };
        let order = by_name(&config.policy)
            .ok_or_else(|| falaj_base::Error::internal("there is no such policy"))?;
        let mut scheduler = Scheduler::new(settings, order);
        for node in &pools.nodes {
            scheduler.apply(0, Event::NodeUp(node.spec.clone()));
        }
        Ok(Self {
            holder,
            scheduler,
            tree: QueueTree::default(),
            jobs: HashMap::new(),
            numbers: BTreeMap::new(),
            next: 1,
            flights: HashMap::new(),
            due: Vec::new(),
            ended: HashSet::new(),
            settling: HashSet::new(),
            settle_again: None,
            projects: HashMap::new(),
            looked: None,
            paces: HashMap::new(),
        })
    }

    /// Gives the tasks of a job their numbers.
    pub(crate) fn add(&mut self, job: Job, project: Arc<Project>) -> &mut LiveJob {
        let first = self.next;
        self.next += u64::from(job.tasks.count.max(1));
        self.numbers.insert(first, job.id);
        let id = job.id;
        self.jobs.entry(id).or_insert(LiveJob { job, project, first, tasks: HashMap::new() })
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.numbers.remove(&job.first);
        }
    }

    pub(crate) fn task(&self, number: Number) -> Option<TaskId> {
        let (first, job) = self.numbers.range(..=number.0).next_back()?;
        let task = u32::try_from(number.0 - first).ok()?;
        (task < self.jobs.get(job)?.job.tasks.count).then_some(TaskId { job: *job, task })
    }

    pub(crate) fn number(&self, task: TaskId) -> Option<Number> {
        Some(self.jobs.get(&task.job)?.number(task.task))
    }

    /// The start of a task that is on its way.
    pub(crate) fn flight_of(&self, task: TaskId) -> Option<&Flight> {
        // A task has one at a time, and its row says which.
        let (_, row) = self.jobs.get(&task.job)?.tasks.get(&task.task)?;
        self.flights.get(&StartId { task, attempt: row.attempts })
    }

    /// The specification of a task, or why there is none.
    pub(crate) fn spec(
        &mut self,
        id: JobId,
        task: u32,
        pools: &Pools,
        now: Millis,
    ) -> Result<Option<falaj_scheduler::JobSpec>> {
        let Some(live) = self.jobs.get(&id) else { return Ok(None) };
        let job = &live.job;
        let queue = job.definition.queue.as_ref();
        let (queue, events) = self.tree.of_job(job.tenant, job.project, queue);
        for event in events {
            self.scheduler.apply(now, event);
        }
        let Some(queue) = queue else { return Ok(None) };
        let Some(pool) = pools.by_name(job.pool.as_str()) else { return Ok(None) };
        let zones = pools.zone_set(pool, &job.zones);
        to_spec(&job.definition, live.number(task), queue, zones, pools).map(Some)
    }
}

/// A placement in the words that are kept: names of nodes outlive their numbers.
pub(crate) fn by_name_of(placement: &[Placed], pools: &Pools) -> Vec<PlacedAt> {
    let named = |placed: &Placed| {
        let node = pools.node(placed.node)?;
        Some(PlacedAt { node: node.name.clone(), devices: placed.devices, slice: placed.slice })
    };
    placement.iter().filter_map(named).collect()
}

/// The reverse; nothing if a node is not there any more.
pub(crate) fn by_number_of(nodes: &[PlacedAt], pool: usize, pools: &Pools) -> Option<Vec<Placed>> {
    let numbered = |at: &PlacedAt| {
        let node = pools.node_named(pool, &at.node)?.spec.id;
        Some(Placed { node, devices: at.devices, slice: at.slice })
    };
    nodes.iter().map(numbered).collect()
}
