//! What a pass does about budgets: of tenants, of projects, and of single jobs.
//!
//! Must hold: a start that a hard budget has no room for is not made; its job waits, and is told which
//! budget and why. What waits for a budget does not stand in the way of others, and nobody leaves its
//! nodes for it: the scheduler does not know of what could not be paid on the cheapest nodes, and hears
//! of it when there is room.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use falaj_base::{Ctx, ProjectId, Resource, Result, Scope, TenantId, Timestamp};
use falaj_scheduler::{Event, JobId as Number, JobSpec, Restored};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::flight::{Flight, Purpose};
use super::least::Least;
use super::memory::{Held, LiveJob, Memory};
use crate::budget::{
    Ledger, Meter, Overrun, Running, Shortage, in_currency, millionths, store as budgets,
};
use crate::cost::cheapest;
use crate::job::{Job, millis};
use crate::name::{JobId, TaskId};
use crate::{JOB_RUN, Training};

/// How often all are asked whether they could be paid, though nothing but the time has changed.
const ASKED: Duration = Duration::from_secs(2);
/// After how long a job is tried again for which only nodes were there that are too dear.
const TOO_DEAR: Duration = Duration::from_secs(30);

impl LiveJob {
    pub(super) fn place(&self) -> (TenantId, ProjectId) {
        (self.job.tenant, self.job.project)
    }
}

/// A start of a job as budgets count it.
pub(super) fn running(job: &Job, price: u64, since: Timestamp) -> Running {
    let limit = job.definition.time_limit;
    Running { price, since, until: limit.map(|limit| since + limit.get()) }
}

/// What a single job may cost, in millionths, and what it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnBudget {
    pub(super) amount: i128,
    pub(super) meter: Meter,
}

impl OwnBudget {
    pub(super) fn of(job: &Job, spent: i128) -> Option<Self> {
        let amount = millionths(job.definition.budget?);
        Some(Self { amount, meter: Meter::whole(spent) })
    }

    pub(super) fn is_spent(&self, now: Timestamp) -> bool {
        self.meter.so_far(now) >= self.amount
    }

    fn in_words(&self, now: Timestamp) -> String {
        let (cost, amount) = (in_currency(self.meter.so_far(now)), in_currency(self.amount));
        format!("all its starts together have cost {cost:.2}, and its budget is {amount:.2}")
    }
}

impl Memory {
    /// A start is about to be made, or was found.
    pub(super) fn pay_from_now(&mut self, flight: &Flight) {
        let Some(live) = self.jobs.get_mut(&flight.id.task.job) else { return };
        let start = running(&live.job, flight.price, flight.since);
        if let Some(own) = &mut live.budget {
            own.meter.begin(&start);
        }
        self.ledger.begin(live.place(), &start);
    }

    /// A start has ended.
    pub(super) fn paid_until(&mut self, flight: &Flight, at: Timestamp) {
        let Some(live) = self.jobs.get_mut(&flight.id.task.job) else { return };
        let start = running(&live.job, flight.price, flight.since);
        if let Some(own) = &mut live.budget {
            own.meter.end(&start, at);
        }
        self.ledger.end(live.place(), &start, at);
    }

    /// Tasks of a job that wait in the scheduler. Those for whose start money is kept do not, nor do those
    /// that only go on elsewhere.
    pub(super) fn waiting_tasks(&self, id: JobId) -> Vec<TaskId> {
        let Some(live) = self.jobs.get(&id) else { return Vec::new() };
        let waits = |task: &TaskId| {
            let Some(number) = self.number(*task) else { return false };
            self.scheduler.knows(number)
                && !self.taking_off.contains(&number)
                && !self.promised.contains_key(&number)
                && !self.going_on.contains(task)
                && self.flight_of(*task).is_none()
        };
        let of = |task: u32| TaskId { job: id, task };
        match live.held.as_ref().filter(|held| held.needs.is_some()) {
            // Of a large array nearly all are held already.
            Some(held) => {
                let known: BTreeSet<u32> =
                    held.free.iter().chain(live.tasks.keys()).copied().collect();
                known.into_iter().map(of).filter(waits).collect()
            }
            None => (0..live.job.tasks.count).map(of).filter(waits).collect(),
        }
    }

    /// Notes that the scheduler may know tasks of a job.
    pub(super) fn let_loose(&mut self, id: JobId) {
        if let Some(least) = self.jobs.get(&id).and_then(|live| live.least) {
            self.loose.insert(least, id);
        }
    }
}

impl Training {
    /// Reads all budgets anew, and counts what runs.
    pub(super) async fn read_budgets(&self, memory: &mut Memory) -> Result<()> {
        let read = |tx: &mut Tx<'_>| {
            let now = tx.now();
            let all = budgets::all(tx)?;
            // What was spent is of the period that this moment is in.
            let with_spent = |kept: budgets::Kept| {
                let window = kept.period.window(now);
                let spent = budgets::spent(tx, (kept.tenant, kept.project), &window)?;
                Ok((kept, spent))
            };
            Ok((all.into_iter().map(with_spent).collect::<Result<Vec<_>>>()?, now))
        };
        let (kept, now) = self.db().read(read).await?;
        memory.ledger = Ledger::new(kept, now);
        memory.loose.clear();
        if memory.ledger.is_empty() {
            memory.promised.clear();
            memory.jobs.values_mut().for_each(|live| live.least = None);
            return Ok(());
        }
        for (place, start) in memory.promised.values() {
            memory.ledger.promise(*place, start);
        }
        for (id, live) in &mut memory.jobs {
            live.least = live.least.or_else(|| self.least_of(&live.job));
            let lacks_more = live.held.as_ref().is_some_and(|held| held.needs.is_none());
            if let Some(least) = live.least.filter(|_| !lacks_more) {
                memory.loose.insert(least, *id);
            }
        }
        for flight in memory.flights.values() {
            let Some(live) = memory.jobs.get(&flight.id.task.job) else { continue };
            let start = running(&live.job, flight.price, flight.since);
            memory.ledger.begin(live.place(), &start);
        }
        Ok(())
    }

    /// What a start of a job costs at least.
    pub(super) fn least_of(&self, job: &Job) -> Option<Least> {
        let pools = self.pool_list();
        let pool = pools.by_name(job.pool.as_str())?;
        let price = cheapest(&job.definition, (pool, &job.zones), pools, self.config())?;
        let limit = job.definition.time_limit.map(falaj_base::HumanDuration::get);
        Some(Least { place: (job.tenant, job.project), price, limit })
    }

    /// Looks at what was spent: tells of shares that were reached, ends what may not go on, and lets
    /// those wait no longer for whom there is room.
    pub(super) async fn look_at_budgets(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        self.end_the_spent(memory, now).await?;
        if memory.ledger.is_empty() && memory.without_budget.is_empty() {
            return Ok(());
        }
        if memory.ledger.is_stale(now) {
            self.read_budgets(memory).await?;
        }
        self.tell_of_shares(memory, now).await?;
        self.end_overruns(memory, now).await?;
        self.let_go_of_affordable(memory, now)
    }

    /// Ends jobs that have cost what they may.
    async fn end_the_spent(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let jobs = &memory.jobs;
        memory.metered.retain(|id| jobs.contains_key(id));
        let spent = |id: &&JobId| {
            let own = jobs.get(*id).and_then(|live| live.budget.as_ref());
            own.is_some_and(|own| own.is_spent(now))
        };
        let spent: Vec<JobId> = memory.metered.iter().filter(spent).copied().collect();
        for id in spent {
            self.end_spent(memory, id, now).await?;
        }
        Ok(())
    }

    /// Ends a job that has cost what it may: what runs of it, and what waits.
    pub(super) async fn end_spent(
        &self,
        memory: &mut Memory,
        id: JobId,
        now: Timestamp,
    ) -> Result<()> {
        let Some(live) = memory.jobs.get(&id) else { return Ok(()) };
        let Some(own) = live.budget else { return Ok(()) };
        let tasks: Vec<u32> = live.tasks.keys().copied().collect();
        let flying = tasks
            .into_iter()
            .map(|task| TaskId { job: id, task })
            .filter(|task| memory.flight_of(*task).is_some_and(|flight| flight.purpose.is_none()));
        for task in flying.collect::<Vec<_>>() {
            let detail = json!({ "why": "budget", "budget": in_currency(own.amount),
                                 "cost": in_currency(own.meter.so_far(now)) });
            self.end_early(memory, task, Purpose::Budget, detail).await?;
        }
        let why = own.in_words(now);
        let held = memory.jobs.get(&id).and_then(|live| live.held.as_ref());
        let held: Vec<u32> =
            held.map_or_else(Vec::new, |held| held.tasks.iter().copied().collect());
        let waiting = memory.waiting_tasks(id).into_iter();
        let waiting = waiting.chain(held.into_iter().map(|task| TaskId { job: id, task }));
        let waiting: Vec<(TaskId, String)> = waiting.map(|task| (task, why.clone())).collect();
        if waiting.is_empty() { Ok(()) } else { self.give_up_all(memory, waiting).await }
    }

    /// Tells of shares of budgets that were reached, once each.
    async fn tell_of_shares(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let ctx = Ctx::system(super::NAME);
        for (entry, shares) in memory.ledger.reached(now) {
            let scope = match entry.project {
                Some(project) => Scope::Project(entry.tenant, project),
                None => Scope::Tenant(entry.tenant),
            };
            let whose = if entry.project.is_some() { "project" } else { "tenant" };
            let id = format!("{}/{whose}/{}", entry.tenant, entry.period.as_str());
            let of = Resource::new("budget", id, scope);
            ctx.authorize(&JOB_RUN, &of).await?;
            let data = json!({
                "whose": whose,
                "project": entry.project,
                "period": entry.period,
                "now": entry.window.label(),
                "amount": in_currency(entry.amount),
                "spent": entry.so_far(now),
                "percent": shares.last(),
                "action": entry.action,
            });
            let told: Vec<u16> = entry.told.iter().chain(&shares).copied().collect();
            let key = (entry.tenant, entry.project, entry.period);
            let (window, amount) = (entry.window, entry.amount);
            let (ctx, last) = (ctx.clone(), shares.last().copied());
            let write = move |tx: &mut Tx<'_>| {
                if !budgets::tell(tx, key, amount, &window, told)? {
                    return Ok(());
                }
                let change = Change::new(&JOB_RUN, &of)
                    .event("budget.reached", &data)
                    .detail("percent", last.unwrap_or(0));
                tx.record(&ctx, change)
            };
            self.commit(memory, write).await?;
            memory.ledger.told(&entry, &shares);
        }
        Ok(())
    }

    /// Lets what runs of spent budgets save its work, and wait or end.
    async fn end_overruns(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        if !memory.ledger.overruns(now) {
            return Ok(());
        }
        let over = |flight: &Flight| {
            let live = memory.jobs.get(&flight.id.task.job)?;
            let found = memory.ledger.overrun(live.place(), now)?;
            flight.purpose.is_none().then_some((flight.id.task, found))
        };
        let over: Vec<(TaskId, (Overrun, Shortage))> =
            memory.flights.values().filter_map(over).collect();
        let mut held: HashSet<JobId> = HashSet::new();
        for (task, (action, short)) in over {
            let why = memory.ledger.in_words(short, now);
            let detail = json!({ "why": why });
            let purpose = if action == Overrun::Stop {
                Purpose::Overdrawn
            } else {
                if held.insert(task.job) {
                    self.hold(memory, BTreeSet::from([task.job]), short, None);
                }
                Purpose::Preempt
            };
            self.end_early(memory, task, purpose, detail).await?;
        }
        Ok(())
    }

    /// Lets all wait for money, unknown to the scheduler, that could not be paid on the cheapest nodes: no
    /// nodes are asked for, and nobody is displaced, for what would not start then.
    pub(super) fn hold_those_without_money(&self, memory: &mut Memory, now: Timestamp) {
        if memory.ledger.is_empty() {
            return;
        }
        let versions = (memory.ledger.version(), memory.loose.version());
        let same = |(ledger, loose, at): (u64, u64, Timestamp)| {
            (ledger, loose) == versions && now.since(at) < ASKED
        };
        if memory.loose.asked.is_some_and(same) {
            return;
        }
        memory.loose.asked = Some((versions.0, versions.1, now));
        let lacks = |least: &Least| {
            Some((*least, memory.ledger.shortage(least.place, &least.start(now), now)?))
        };
        let short: Vec<(Least, Shortage)> = memory.loose.all().filter_map(lacks).collect();
        for (least, short) in short {
            let jobs = memory.loose.take(&least);
            self.hold(memory, jobs, short, None);
        }
    }

    /// Whether there is money for a start; otherwise its job waits, and those like it unless cheaper nodes
    /// would do.
    pub(super) fn affordable(
        &self,
        memory: &mut Memory,
        id: JobId,
        start: &Running,
        now: Timestamp,
    ) -> bool {
        let Some(live) = memory.jobs.get(&id) else { return false };
        let (place, least) = (live.place(), live.least);
        let Some(short) = memory.ledger.shortage(place, start, now) else { return true };
        let at_least = least.and_then(|least| {
            Some((least, memory.ledger.shortage(place, &least.start(now), now)?))
        });
        if let Some((least, short)) = at_least {
            let mut alike = memory.loose.take(&least);
            alike.insert(id);
            self.hold(memory, alike, short, None);
        } else {
            self.hold(memory, BTreeSet::from([id]), short, Some(now + TOO_DEAR));
        }
        false
    }

    /// Lets the tasks of jobs that wait wait for money, unknown to the scheduler.
    pub(super) fn hold(
        &self,
        memory: &mut Memory,
        jobs: BTreeSet<JobId>,
        short: Shortage,
        again_at: Option<Timestamp>,
    ) {
        let now = self.db().now();
        let why = memory.ledger.in_words(short, now);
        let mut numbers: HashSet<Number> = HashSet::new();
        // The scheduler goes on knowing those for whose start money is kept.
        let mut kept: HashMap<JobId, BTreeSet<u32>> = HashMap::new();
        let promised = memory.promised.keys().filter_map(|number| memory.task(*number));
        for task in promised.filter(|task| jobs.contains(&task.job)) {
            kept.entry(task.job).or_default().insert(task.task);
        }
        for id in jobs {
            let waiting = memory.waiting_tasks(id);
            numbers.extend(waiting.iter().filter_map(|task| memory.number(*task)));
            let Some(live) = memory.jobs.get_mut(&id) else { continue };
            if let Some(least) = &live.least {
                memory.loose.remove(least, id);
            }
            let held = live.held.get_or_insert_with(|| Held::for_money(why.clone(), short.needs));
            held.tasks.extend(waiting.into_iter().map(|task| task.task));
            held.free = kept.remove(&id).unwrap_or_default();
            if held.needs.is_some() {
                (held.why, held.needs) = (why.clone(), Some(short.needs));
                held.again_at = again_at;
                memory.without_budget.insert(id);
            }
        }
        memory.drop_due(|number| numbers.contains(&number));
        for number in numbers {
            memory.scheduler.apply(millis(now), Event::Cancelled(number));
        }
    }

    /// Tells the scheduler of tasks for which there is room by now, the oldest first, and of no more
    /// than there is room for.
    pub(super) fn let_go_of_affordable(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let mut promised: HashMap<(TenantId, ProjectId), i128> = HashMap::new();
        let mut without: HashSet<Least> = HashSet::new();
        for id in memory.without_budget.clone() {
            let Some(live) = memory.jobs.get_mut(&id) else {
                memory.without_budget.remove(&id);
                continue;
            };
            let place = live.place();
            let Some(held) = live.held.as_mut().filter(|held| held.needs.is_some()) else {
                memory.without_budget.remove(&id);
                continue;
            };
            if held.again_at.is_some_and(|at| at > now) {
                continue;
            }
            // Where nothing would do, or nobody counts any more, there is nothing to wait for.
            let least = live.least.unwrap_or(Least { place, price: 0, limit: None });
            let start = least.start(now);
            if without.contains(&least) {
                continue;
            }
            let needs = Meter::whole(0).would_add(&start);
            let promised = promised.entry(place).or_default();
            let mut free = Vec::new();
            while let Some(task) = held.tasks.first().copied() {
                if !memory.ledger.has_room(place, &start, *promised, now) {
                    without.insert(least);
                    break;
                }
                *promised += needs;
                held.tasks.remove(&task);
                if !live.tasks.contains_key(&task) {
                    held.free.insert(task);
                }
                free.push(task);
            }
            let nobody_waits = held.tasks.is_empty()
                && memory.ledger.has_room(place, &start, *promised - needs.min(*promised), now);
            if nobody_waits {
                live.held = None;
                memory.without_budget.remove(&id);
                memory.let_loose(id);
            }
            self.let_go_tasks(memory, id, &free, now)?;
        }
        Ok(())
    }

    /// Tells the scheduler of tasks of a job that were held.
    pub(super) fn let_go_tasks(
        &self,
        memory: &mut Memory,
        id: JobId,
        tasks: &[u32],
        now: Timestamp,
    ) -> Result<()> {
        if tasks.is_empty() {
            return Ok(());
        }
        let spec = match self.spec_of(memory, id, millis(now))? {
            // Under a number that nobody has: another task of it may be known.
            Ok(spec) => match memory
                .scheduler
                .check_restored(&JobSpec { id: Number(u64::MAX), ..spec.clone() })
            {
                Ok(()) => Ok(spec),
                Err(why) => Err(self.in_words(memory, id, &why)),
            },
            Err(why) => Err(why),
        };
        let Some(live) = memory.jobs.get_mut(&id) else { return Ok(()) };
        let spec = match spec {
            Ok(spec) => spec,
            Err(why) => {
                // Money would do, and something else would not by now.
                let held = live.held.get_or_insert_with(|| Held::for_good(why.clone()));
                (held.why, held.needs) = (why, None);
                held.tasks.extend(tasks);
                if let Some(least) = &live.least {
                    memory.loose.remove(least, id);
                }
                return Ok(());
            }
        };
        let submitted = millis(live.job.created_at);
        for task in tasks {
            let ran = live.tasks.get(task).map_or(0, |(_, row)| row.ran_ms);
            let mut spec = spec.clone();
            spec.id = live.number(*task);
            let restored = Restored { spec, submitted, ran, running: None };
            memory.scheduler.apply(millis(now), Event::Restored(Box::new(restored)));
        }
        memory.let_loose(id);
        Ok(())
    }
}
