//! What the one who schedules has in mind. All of it can be found again in the database and at the
//! executors; it is dropped and made anew whenever a write fails.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use falaj_base::{ProjectId, Result, TenantId, Timestamp};
use falaj_executors::{ExecutorError, Observed};
use falaj_governance::tenancy::Project;
use falaj_scheduler::order::by_name;
use falaj_scheduler::{Event, JobId as Number, Millis, Placed, Scheduler, Settings};

use tokio::task::JoinHandle;

use super::flight::Flight;
use super::least::{Least, Loose};
use super::purse::OwnBudget;
use super::scale::NodeBook;
use super::tend::Pace;
use crate::budget::{Ledger, Running};
use crate::config::TrainingConfig;
use crate::job::store::TaskRow;
use crate::job::{Definition, Job, PlacedAt, State, to_spec};
use crate::name::{JobId, StartId, TaskId};
use crate::pool::Pools;
use crate::queue::tree::QueueTree;
use crate::telemetry::watching::Watching;

/// A job that is not over.
#[derive(Debug)]
pub(crate) struct LiveJob {
    pub(crate) job: Job,
    pub(crate) project: Arc<Project>,
    /// The scheduler's number of its first task.
    pub(crate) first: u64,
    /// Tasks that have started and are not over.
    pub(crate) tasks: HashMap<u32, (State, TaskRow)>,
    /// Why the scheduler is not told of those that wait.
    pub(crate) held: Option<Held>,
    /// What it may cost, if it says so itself.
    pub(crate) budget: Option<OwnBudget>,
    /// What a start of it costs at least, where there are budgets.
    pub(crate) least: Option<Least>,
}

/// A job that was taken in once and would not be now: a type of GPU, a pool, nodes or a quota are not
/// there any more, or a budget is spent. What runs of it goes on; what waits would stand in the way of
/// others.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) why: String,
    /// Its tasks that wait.
    pub(crate) tasks: BTreeSet<u32>,
    /// Those that may never have run and of which the scheduler knows all the same: there was money for
    /// some, or it is kept for their start.
    pub(crate) free: BTreeSet<u32>,
    /// What a start of it may cost, in millionths, if money is all that is missing.
    pub(crate) needs: Option<i128>,
    /// Before when it is not tried again: only nodes that are too dear for it were there.
    pub(crate) again_at: Option<Timestamp>,
}

impl Held {
    /// Until things change.
    pub(crate) fn for_good(why: String) -> Self {
        let (tasks, free) = (BTreeSet::new(), BTreeSet::new());
        Self { why, tasks, free, needs: None, again_at: None }
    }

    /// Until there is money.
    pub(crate) fn for_money(why: String, needs: i128) -> Self {
        Self { needs: Some(needs), ..Self::for_good(why) }
    }
}

/// An ended start whose end is to be seen to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) pool: usize,
    /// How often it was tried in vain, and when it is tried again.
    pub(crate) failures: u32,
    pub(crate) again_at: Option<Timestamp>,
}

impl Ending {
    pub(crate) fn at(pool: usize) -> Self {
        Self { pool, failures: 0, again_at: None }
    }
}

/// An executor that was asked what runs, and when.
pub(crate) type Observing = (Timestamp, JoinHandle<Result<Vec<Observed>, ExecutorError>>);

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
    pub(crate) ended: HashMap<StartId, Ending>,
    /// When each pool last told what runs, or was asked in vain.
    pub(crate) observed: HashMap<usize, Timestamp>,
    /// Pools that have not answered yet.
    pub(crate) observing: HashMap<usize, Observing>,
    /// Starts whose executor was told to stop them and has not answered yet.
    pub(crate) telling: HashMap<StartId, JoinHandle<Result<(), ExecutorError>>>,
    /// When runs that do not know of the end of their job were last looked for.
    pub(crate) runs_looked: Option<Timestamp>,
    pub(crate) projects: HashMap<ProjectId, Arc<Project>>,
    /// When checkpoints, steps and budgets were last looked at.
    pub(crate) looked: Option<Timestamp>,
    pub(crate) paces: HashMap<StartId, Pace>,
    /// Jobs of many starts that reported since then.
    pub(crate) reported: HashSet<JobId>,
    /// What starts use.
    pub(crate) watching: Watching,
    /// Which nodes are there.
    pub(crate) nodes: NodeBook,
    /// Tasks that gave up their nodes for being idle, by when they are in line again.
    pub(crate) aside: BTreeSet<(Timestamp, TaskId)>,
    /// Budgets of tenants and projects.
    pub(crate) ledger: Ledger,
    /// Jobs with a budget of their own.
    pub(crate) metered: HashSet<JobId>,
    /// Jobs that wait for money, the oldest first.
    pub(crate) without_budget: BTreeSet<JobId>,
    /// Jobs that are not held, where there are budgets.
    pub(crate) loose: Loose,
    /// Money that is kept for starts that were decided.
    pub(crate) promised: HashMap<Number, ((TenantId, ProjectId), Running)>,
    /// Tasks whose next start nobody asked for but the scheduler: it goes on elsewhere, or with other
    /// nodes, and is not asked for money again.
    pub(crate) going_on: HashSet<TaskId>,
    /// Starts that are being written down.
    pub(crate) taking_off: HashSet<Number>,
}

impl Memory {
    pub(crate) fn new(holder: String, config: &TrainingConfig, pools: &Pools) -> Result<Self> {
        let settings = Settings {
            round: u64::try_from(config.round.get().as_millis()).unwrap_or(300_000).max(1000),
            half_life: config.fair_share.millis(),
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
            ended: HashMap::new(),
            observed: HashMap::new(),
            observing: HashMap::new(),
            telling: HashMap::new(),
            runs_looked: None,
            projects: HashMap::new(),
            looked: None,
            paces: HashMap::new(),
            reported: HashSet::new(),
            watching: Watching::default(),
            nodes: NodeBook::default(),
            aside: BTreeSet::new(),
            ledger: Ledger::default(),
            metered: HashSet::new(),
            without_budget: BTreeSet::new(),
            loose: Loose::default(),
            promised: HashMap::new(),
            going_on: HashSet::new(),
            taking_off: HashSet::new(),
        })
    }

    /// Gives the tasks of a job their numbers. `least` is what a start of it costs, where that matters.
    pub(crate) fn add(
        &mut self,
        job: Job,
        project: Arc<Project>,
        least: Option<Least>,
    ) -> &mut LiveJob {
        let first = self.next;
        self.next += u64::from(job.tasks.count.max(1));
        self.numbers.insert(first, job.id);
        let id = job.id;
        let budget = OwnBudget::of(&job, 0);
        if budget.is_some() {
            self.metered.insert(id);
        }
        if let Some(least) = least {
            self.loose.insert(least, id);
        }
        self.jobs.entry(id).or_insert(LiveJob {
            job,
            project,
            first,
            tasks: HashMap::new(),
            held: None,
            budget,
            least,
        })
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.numbers.remove(&job.first);
            self.going_on.retain(|task| task.job != id);
            if let Some(least) = &job.least {
                self.loose.remove(least, id);
            }
        }
    }

    /// Gives up starts that were decided and have not been made, and the money that was kept for them.
    pub(crate) fn drop_due(&mut self, gone: impl Fn(Number) -> bool) {
        self.due.retain(|due| !gone(due.number));
        let ledger = &mut self.ledger;
        self.promised.retain(|number, (place, start)| {
            let stays = !gone(*number);
            if !stays {
                ledger.release(*place, start);
            }
            stays
        });
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

    /// The specification of a task; nothing if its queue or its pool is not there.
    pub(crate) fn spec(
        &mut self,
        id: JobId,
        task: u32,
        pools: &Pools,
        now: Millis,
    ) -> Result<Option<falaj_scheduler::JobSpec>> {
        let Some(live) = self.jobs.get(&id) else { return Ok(None) };
        let definition = live.job.definition.clone();
        self.spec_as(id, task, &definition, pools, now)
    }

    /// The specification of the first task of a job whose type of GPU is not there any more: what runs
    /// of it has its GPUs.
    pub(crate) fn spec_of_any_gpu(
        &mut self,
        id: JobId,
        pools: &Pools,
        now: Millis,
    ) -> Result<Option<falaj_scheduler::JobSpec>> {
        let Some(live) = self.jobs.get(&id) else { return Ok(None) };
        let mut definition = live.job.definition.clone();
        definition.resources.gpu_type = None;
        self.spec_as(id, 0, &definition, pools, now)
    }

    fn spec_as(
        &mut self,
        id: JobId,
        task: u32,
        definition: &Definition,
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
        to_spec(definition, live.number(task), queue, zones, pools).map(Some)
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
