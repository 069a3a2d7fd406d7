//! The end of a start, and what becomes of its task.

use std::collections::{BTreeMap, HashSet};

use falaj_base::{Ctx, ProjectId, Resource, Result, TenantId, Timestamp};
use falaj_executors::{End, RankEnd};
use falaj_governance::epoch::Moved;
use falaj_governance::identity::Authenticator;
use falaj_scheduler::{Event, HalfLife, JobId as Number};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::after::tokens_of;
use super::flight::{Flight, Purpose};
use super::memory::{Due, Ending, LiveJob, Memory};
use super::usage::Used;
use super::{inbox, told};
use crate::budget::store::Bill;
use crate::job::store::{self as jobs, Ended, TaskRow};
use crate::job::{State, Tally, millis, resource};
use crate::name::{JobId, StartId, TaskId};
use crate::{JOB_RUN, Training};

/// How the end of a rank that used too much memory ends.
pub(crate) const OUT_OF_MEMORY: &str = "used more memory than it had";

/// Tasks that are given up in one transaction.
const AT_ONCE: usize = 500;

/// How a start ended, as its executor tells or as is concluded.
#[derive(Clone, Debug)]
pub(super) struct Landed {
    pub(super) id: StartId,
    pub(super) end: End,
    pub(super) at: Timestamp,
    pub(super) isolation: Option<String>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) peak_memory: Option<u64>,
    /// In place of what the end says of itself.
    pub(super) says: Option<String>,
}

/// What a task becomes when a start of it has ended so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    Over(State),
    /// Waits again; before all others if what happened was no fault of its own.
    Waits {
        state: State,
        first: bool,
    },
}

/// The rule, pure: `retries` and `losses` are how many are left.
pub(super) fn becomes(end: &End, purpose: Option<Purpose>, retries: u32, losses: u32) -> Becomes {
    let again = |left: u32, over: State, first: bool| {
        if left > 0 { Becomes::Waits { state: State::Pending, first } } else { Becomes::Over(over) }
    };
    match (end, purpose) {
        // It was done before it could be told anything.
        (End::Succeeded, _) => Becomes::Over(State::Succeeded),
        // Somebody stopped it at its engine; starting it again would be against their will.
        (_, Some(Purpose::Cancel)) | (End::Stopped, None) => Becomes::Over(State::Cancelled),
        (_, Some(Purpose::Budget | Purpose::Overdrawn | Purpose::Refuse))
        | (End::TimedOut, None) => Becomes::Over(State::Failed),
        (_, Some(Purpose::Preempt | Purpose::Move | Purpose::Reclaim)) => {
            Becomes::Waits { state: State::Preempted, first: false }
        }
        (_, Some(Purpose::Hang)) | (End::Lost, None) => again(losses, State::Lost, true),
        (End::Preempted, None) => Becomes::Waits { state: State::Preempted, first: true },
        (End::Failed { .. }, None) => again(retries, State::Failed, false),
    }
}

/// An end in words, and the exit code if there is one.
pub(super) fn words(end: &End, purpose: Option<Purpose>) -> (String, Option<i64>) {
    let text = match end {
        End::Succeeded => return ("it is done".to_owned(), Some(0)),
        End::Failed { rank, how } => {
            let (how, code) = match how {
                RankEnd::Exit(code) => (format!("ended with {code}"), Some(i64::from(*code))),
                RankEnd::Signal(signal) => {
                    (format!("was ended by signal {signal}"), Some(128 + i64::from(*signal)))
                }
                RankEnd::OutOfMemory => (OUT_OF_MEMORY.to_owned(), Some(137)),
                RankEnd::NotStarted => {
                    ("could not be started; its output says why".to_owned(), None)
                }
            };
            return (format!("rank {rank} {how}"), code);
        }
        End::Stopped => match purpose {
            Some(Purpose::Cancel) => "it was cancelled",
            Some(Purpose::Preempt) => "it left its nodes to others",
            Some(Purpose::Move) => "it goes on on other nodes",
            Some(Purpose::Reclaim) => {
                "it did not use what it had, and is in line again after a while"
            }
            Some(Purpose::Hang) => "its ranks made no progress",
            Some(Purpose::Budget) => "it cost what it may",
            Some(Purpose::Overdrawn) => "the budget of its project or its tenant is spent",
            Some(Purpose::Refuse) => "it can never run as things are now",
            None => "somebody stopped it outside of Falaj",
        },
        End::TimedOut => "it ran into its time limit",
        End::Preempted => "its engine took its nodes away",
        End::Lost => "its processes vanished without leaving an end",
    };
    (text.to_owned(), None)
}

/// What is written about one end.
struct Row {
    id: StartId,
    at: Timestamp,
    ended: Ended,
    state: State,
    task: TaskRow,
    whole: (State, Tally),
    reason: Option<String>,
    retried: bool,
    of: Resource,
    place: (TenantId, ProjectId),
    queue: String,
    price: u64,
    since: Timestamp,
}

impl Training {
    /// Writes down how starts ended, and lets the scheduler know.
    pub(super) async fn land(&self, memory: &mut Memory, landed: Vec<Landed>) -> Result<()> {
        if landed.is_empty() {
            return Ok(());
        }
        let ctx = Ctx::system(super::NAME);
        let now = self.db().now();
        let mut rows = Vec::with_capacity(landed.len());
        let mut tell: Vec<(Number, Becomes, StartId)> = Vec::new();
        for landed in landed {
            let Some(flight) = memory.flights.get(&landed.id).cloned() else { continue };
            let task = landed.id.task;
            let Some(live) = memory.jobs.get_mut(&task.job) else { continue };
            let Some((_, row)) = live.tasks.get(&task.task).cloned() else { continue };
            let mut row = row;
            let retries = live.job.definition.retries.saturating_sub(row.failures);
            let losses = self.config().max_losses.saturating_sub(row.losses);
            let mut becomes = becomes(&landed.end, flight.purpose, retries, losses);
            let failed = matches!(landed.end, End::Failed { .. }) && flight.purpose.is_none();
            let lost = flight.purpose == Some(Purpose::Hang)
                || (landed.end == End::Lost && flight.purpose.is_none());
            row.failures += u32::from(failed);
            row.losses += u32::from(lost);
            let ran = landed.at.since(flight.since).as_millis();
            row.ran_ms += u64::try_from(ran).unwrap_or(0);
            let (mut text, exit_code) = words(&landed.end, flight.purpose);
            if let Some(why) = self.after_reclaim(live, &flight, &mut row, becomes, landed.at) {
                (becomes, text) = (Becomes::Over(State::Failed), why);
            }
            let ending = landed.says.unwrap_or(text);
            let (state, over) = match becomes {
                Becomes::Over(state) => (state, true),
                Becomes::Waits { state, .. } => (state, false),
            };
            row.reason = (state != State::Succeeded).then(|| ending.clone());
            if over {
                live.job.tasks.count_end(state);
                live.tasks.remove(&task.task);
            } else {
                live.tasks.insert(task.task, (state, row.clone()));
            }
            let whole = live.job.tasks.state(state);
            live.job.state = whole;
            let reason = match (live.job.tasks.count, whole) {
                (1, _) => row.reason.clone(),
                (_, State::Failed | State::Lost) => Some(live.job.tasks.in_words()),
                _ => None,
            };
            let of = resource(&live.project, &task.job.to_string(), false);
            ctx.authorize(&JOB_RUN, &of).await?;
            rows.push(Row {
                id: landed.id,
                at: landed.at,
                ended: Ended {
                    state: if over { state } else { of_start(&landed.end, flight.purpose) },
                    ending,
                    exit_code,
                    isolation: landed.isolation,
                    cpu_seconds: landed.cpu_seconds,
                    peak_memory: landed.peak_memory,
                    stacks: flight.stacks.clone(),
                },
                state,
                task: row,
                whole: (whole, live.job.tasks),
                reason,
                retried: !over && state == State::Pending,
                of,
                place: live.place(),
                queue: live
                    .job
                    .definition
                    .queue
                    .as_ref()
                    .map_or_else(String::new, ToString::to_string),
                price: flight.price,
                since: flight.since,
            });
            memory.paid_until(&flight, landed.at);
            memory.ended.insert(landed.id, Ending::at(flight.pool));
            tell.push((flight.number, becomes, landed.id));
        }
        let fading = self.fading();
        let write = move |tx: &mut Tx<'_>| write_ends(tx, &ctx, &rows, fading);
        let moved = self.commit(memory, write).await?;
        if let (Some(authenticator), Some(moved)) = (self.authenticator(), moved) {
            authenticator.told_of(moved);
        }
        for (number, becomes, id) in tell {
            tell_scheduler(memory, (number, becomes, id), now);
            if memory.jobs.get(&id.task.job).is_some_and(|live| live.job.state.is_over()) {
                memory.remove(id.task.job);
            }
        }
        Ok(())
    }

    /// What follows for a task whose start gave up its nodes for being idle: it is in line again after a
    /// while, or is over if that was so too often.
    fn after_reclaim(
        &self,
        live: &LiveJob,
        flight: &Flight,
        row: &mut TaskRow,
        becomes: Becomes,
        at: Timestamp,
    ) -> Option<String> {
        row.aside_until = None;
        let policy = self.policy_of(live, flight);
        if flight.purpose != Some(Purpose::Reclaim) {
            // It had time enough to be found idle, and was not.
            if at.since(flight.since) >= policy.after.get() {
                row.reclaims = 0;
            }
            return None;
        }
        if !matches!(becomes, Becomes::Waits { .. }) {
            return None;
        }
        if policy.tries > 0 && row.reclaims >= policy.tries {
            let starts = row.reclaims;
            return Some(format!(
                "it used nothing of what it had in {starts} starts, one after the other"
            ));
        }
        row.aside_until = Some(at + policy.pause.get());
        None
    }

    /// Ends a task that has no start on its way: it can never run.
    pub(super) async fn give_up(&self, memory: &mut Memory, task: TaskId, why: &str) -> Result<()> {
        self.give_up_all(memory, vec![(task, why.to_owned())]).await
    }

    /// Ends tasks that have no start on their way. There may be a hundred thousand of them: they are
    /// written down together, and those of a job that is over with them need no rows of their own.
    pub(super) async fn give_up_all(
        &self,
        memory: &mut Memory,
        refused: Vec<(TaskId, String)>,
    ) -> Result<()> {
        let mut by_job: BTreeMap<JobId, Vec<(u32, String)>> = BTreeMap::new();
        for (id, why) in refused {
            by_job.entry(id.job).or_default().push((id.task, why));
        }
        let ctx = Ctx::system(super::NAME);
        let mut batch = Vec::new();
        let mut size = 0;
        for (id, tasks) in by_job {
            if let Some(given) = given_up(&ctx, memory, id, tasks).await? {
                size += 1 + given.rows.len();
                batch.push(given);
            }
            if size >= AT_ONCE {
                size = 0;
                self.write_given_up(&ctx, memory, std::mem::take(&mut batch)).await?;
            }
        }
        self.write_given_up(&ctx, memory, batch).await
    }

    async fn write_given_up(
        &self,
        ctx: &Ctx,
        memory: &mut Memory,
        batch: Vec<GivenUp>,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let over: Vec<JobId> = batch.iter().map(|given| given.job).collect();
        let numbers: HashSet<Number> = batch
            .iter()
            .flat_map(|given| given.tasks.iter().map(|task| TaskId { job: given.job, task: *task }))
            .filter_map(|task| memory.number(task))
            .collect();
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            batch.iter().try_for_each(|given| write_given_up(tx, &ctx, given))
        };
        self.commit(memory, write).await?;
        let now = millis(self.db().now());
        memory.drop_due(|number| numbers.contains(&number));
        for number in numbers {
            memory.scheduler.apply(now, Event::Cancelled(number));
        }
        for job in over {
            self.after_the_job(memory, job);
        }
        Ok(())
    }

    /// Removes a job that is over from mind, and lets its runs know.
    pub(super) fn after_the_job(&self, memory: &mut Memory, id: JobId) {
        if memory.jobs.get(&id).is_some_and(|live| live.job.state.is_over()) {
            memory.remove(id);
            self.tell_runs(id);
        }
    }
}

/// Tasks of a job that are given up, as they are written down.
struct GivenUp {
    job: JobId,
    tasks: Vec<u32>,
    /// Those that have a row of their own.
    rows: Vec<(u32, TaskRow)>,
    whole: (State, Tally),
    why: String,
    of: Resource,
}

/// Takes tasks of a job out of mind.
async fn given_up(
    ctx: &Ctx,
    memory: &mut Memory,
    job: JobId,
    tasks: Vec<(u32, String)>,
) -> Result<Option<GivenUp>> {
    let Some(live) = memory.jobs.get_mut(&job) else { return Ok(None) };
    let Some((_, why)) = tasks.first().cloned() else { return Ok(None) };
    for _ in &tasks {
        live.job.tasks.count_end(State::Failed);
    }
    let whole = (live.job.tasks.state(State::Failed), live.job.tasks);
    live.job.state = whole.0;
    let all = !whole.0.is_over() || whole.1.count == 1;
    let mut rows = Vec::new();
    for (task, why) in &tasks {
        let row = live.tasks.remove(task).map(|(_, row)| row);
        if row.is_some() || all {
            let row = TaskRow { reason: Some(why.clone()), ..row.unwrap_or_default() };
            rows.push((*task, row));
        }
        if let Some(held) = &mut live.held {
            held.tasks.remove(task);
        }
    }
    let of = resource(&live.project, &job.to_string(), false);
    ctx.authorize(&JOB_RUN, &of).await?;
    let tasks = tasks.into_iter().map(|(task, _)| task).collect();
    Ok(Some(GivenUp { job, tasks, rows, whole, why, of }))
}

fn write_given_up(tx: &mut Tx<'_>, ctx: &Ctx, given: &GivenUp) -> Result<()> {
    let GivenUp { job, tasks, rows, whole: (state, tally), why, of } = given;
    for (task, row) in rows {
        jobs::put_task(tx, TaskId { job: *job, task: *task }, State::Failed, row)?;
    }
    jobs::progress(tx, *job, (*state, tally), Some(why))?;
    // All of them for the same reason: it is told once.
    let first = TaskId { job: *job, task: tasks.first().copied().unwrap_or(0) };
    let detail = json!({ "why": why, "tasks": tasks.len() });
    jobs::note_decision(tx, first, "refuse", &detail)?;
    if state.is_over() {
        inbox::runs_are_open(tx, *job)?;
    }
    let change = Change::new(&JOB_RUN, of)
        .event("job.ended", &told(first, State::Failed))
        .detail("task", first.task)
        .detail("tasks", tasks.len())
        .detail("why", why);
    tx.record(ctx, change)
}

/// Lets the scheduler know what became of a task.
fn tell_scheduler(
    memory: &mut Memory,
    (number, becomes, id): (Number, Becomes, StartId),
    now: Timestamp,
) {
    let flight = memory.flights.remove(&id);
    let reclaimed = flight.as_ref().is_some_and(|it| it.purpose == Some(Purpose::Reclaim));
    if reclaimed && matches!(becomes, Becomes::Waits { .. }) && memory.set_aside(id.task, now) {
        memory.going_on.remove(&id.task);
        return;
    }
    let now = millis(now);
    // What was over, hung or failed before it could go on elsewhere does not.
    if !matches!(becomes, Becomes::Waits { state: State::Preempted, .. }) {
        memory.going_on.remove(&id.task);
    }
    let goes_on = memory.going_on.contains(&id.task);
    let held = memory.jobs.get_mut(&id.task.job).and_then(|live| live.held.as_mut());
    // Money is not asked for again by what only goes on elsewhere.
    let held = held.filter(|held| !(goes_on && held.needs.is_some()));
    if let (Becomes::Waits { .. }, Some(held)) = (becomes, held) {
        held.tasks.insert(id.task.task);
        memory.going_on.remove(&id.task);
        memory.scheduler.apply(now, Event::Cancelled(number));
        return;
    }
    let leaving = matches!(memory.scheduler.why(number), Some(falaj_scheduler::why::Why::Leaving));
    let event = match becomes {
        Becomes::Over(State::Cancelled) => Event::Cancelled(number),
        Becomes::Over(_) => Event::Finished(number),
        Becomes::Waits { state: State::Preempted, first } => {
            if let Some((placement, after)) = flight.and_then(|flight| flight.then) {
                memory.due.push(Due { number, placement, after, borrows: false });
                Event::Resized(number)
            } else if leaving {
                Event::Stopped(number)
            } else {
                // Decided by somebody who was here before, or by the engine.
                Event::Again { job: number, first: (first || !leaving) && !reclaimed }
            }
        }
        Becomes::Waits { first, .. } => Event::Again { job: number, first },
    };
    memory.scheduler.apply(now, event);
}

/// What a start itself came to, where its task goes on.
fn of_start(end: &End, purpose: Option<Purpose>) -> State {
    match (end, purpose) {
        (End::Succeeded, _) => State::Succeeded,
        (_, Some(Purpose::Preempt | Purpose::Move | Purpose::Reclaim)) | (End::Preempted, _) => {
            State::Preempted
        }
        (_, Some(Purpose::Cancel)) => State::Cancelled,
        (End::Lost, _) => State::Lost,
        _ => State::Failed,
    }
}

/// Writes how starts ended, with what they cost and used, and ends their tokens.
fn write_ends(tx: &mut Tx<'_>, ctx: &Ctx, rows: &[Row], fading: HalfLife) -> Result<Option<Moved>> {
    let mut tokens = Vec::new();
    let mut bill = Bill::default();
    let mut used = Used::new(fading, tx.now());
    for row in rows {
        let ends = write_end(tx, ctx, row)?;
        let start = jobs::find_start(tx, row.id.task, Some(row.id.attempt))?;
        if ends {
            let span = (row.since, row.at);
            bill.add(row.place, row.price, span);
            let holds = start.as_ref().map_or([0; 3], |start| start.holds);
            used.add((row.place.0, row.place.1, row.queue.clone()), holds, span);
        }
        tokens.extend(start.iter().flat_map(tokens_of));
    }
    bill.pay(tx)?;
    used.keep(tx)?;
    Authenticator::end_job_tokens(tx, &tokens)
}

/// False if it had ended before.
fn write_end(tx: &mut Tx<'_>, ctx: &Ctx, row: &Row) -> Result<bool> {
    if !jobs::end_start(tx, row.id, row.at, &row.ended)? {
        return Ok(false);
    }
    let task = row.id.task;
    jobs::put_task(tx, task, row.state, &row.task)?;
    jobs::progress(tx, task.job, (row.whole.0, &row.whole.1), row.reason.as_deref())?;
    if row.retried {
        let detail = json!({ "why": row.ended.ending, "failures": row.task.failures,
                             "losses": row.task.losses });
        jobs::note_decision(tx, task, "retry", &detail)?;
    }
    let kind = if row.state.is_over() { "job.ended" } else { "job.waiting" };
    let change = Change::new(&JOB_RUN, &row.of)
        .event(kind, &told(task, row.state))
        .detail("task", task.task)
        .detail("attempt", row.id.attempt)
        .detail("state", row.state.as_str());
    tx.record(ctx, change)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_becomes() {
        use State::{Cancelled, Failed, Lost, Pending, Preempted, Succeeded};
        let failed = End::Failed { rank: 1, how: RankEnd::Exit(3) };
        let waits = |state, first| Becomes::Waits { state, first };
        for (end, purpose, retries, losses, expected) in [
            (End::Succeeded, None, 0, 0, Becomes::Over(Succeeded)),
            (End::Succeeded, Some(Purpose::Cancel), 0, 0, Becomes::Over(Succeeded)),
            (End::Succeeded, Some(Purpose::Preempt), 0, 0, Becomes::Over(Succeeded)),
            (failed.clone(), None, 0, 9, Becomes::Over(Failed)),
            (failed.clone(), None, 1, 0, waits(Pending, false)),
            (failed.clone(), Some(Purpose::Preempt), 0, 0, waits(Preempted, false)),
            (failed, Some(Purpose::Cancel), 3, 3, Becomes::Over(Cancelled)),
            (End::Stopped, Some(Purpose::Move), 0, 0, waits(Preempted, false)),
            (End::Stopped, Some(Purpose::Hang), 0, 1, waits(Pending, true)),
            (End::Stopped, Some(Purpose::Hang), 0, 0, Becomes::Over(Lost)),
            (End::Stopped, Some(Purpose::Budget), 3, 3, Becomes::Over(Failed)),
            (End::Stopped, None, 3, 3, Becomes::Over(Cancelled)),
            (End::TimedOut, None, 3, 3, Becomes::Over(Failed)),
            (End::Preempted, None, 0, 0, waits(Preempted, true)),
            (End::Lost, None, 0, 2, waits(Pending, true)),
            (End::Lost, None, 5, 0, Becomes::Over(Lost)),
            (End::Lost, Some(Purpose::Cancel), 5, 5, Becomes::Over(Cancelled)),
            (End::Lost, Some(Purpose::Preempt), 0, 0, waits(Preempted, false)),
        ] {
            let found = becomes(&end, purpose, retries, losses);
            assert_eq!(found, expected, "{end:?} {purpose:?} {retries} {losses}");
        }
    }

    #[test]
    fn an_end_is_told_in_words() {
        for (how, text, code) in [
            (RankEnd::Exit(3), "rank 1 ended with 3", Some(3)),
            (RankEnd::Signal(9), "rank 1 was ended by signal 9", Some(137)),
            (RankEnd::OutOfMemory, "rank 1 used more memory than it had", Some(137)),
        ] {
            let end = End::Failed { rank: 1, how };
            assert_eq!(words(&end, None), (text.to_owned(), code));
        }
        assert_eq!(words(&End::Stopped, Some(Purpose::Cancel)).0, "it was cancelled");
    }
}
