//! What the scheduler decides, put in motion.

use falaj_base::{Ctx, Result};
use falaj_executors::Notice;
use falaj_scheduler::{Decision, Event, JobId as Number, Placed, StopReason};
use falaj_store::record::Change;
use serde_json::{Value, json};

use super::flight::{Launched, Purpose};
use super::memory::{Due, Memory, by_name_of};
use super::told;
use crate::job::store as jobs;
use crate::job::{State, explain, millis, resource};
use crate::name::{StartId, TaskId};
use crate::{JOB_RUN, Training};

/// How often a pass decides anew because a budget had no room for what was decided.
const ROUNDS: usize = 16;

/// A start that has to leave its nodes.
struct Leaving {
    id: StartId,
    state: State,
    purpose: Purpose,
    detail: Value,
}

impl Training {
    /// Decides until nobody is left without money: what those were to have others may.
    pub(super) async fn decide(&self, memory: &mut Memory) -> Result<()> {
        for _ in 0..ROUNDS {
            if self.decide_once(memory).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// True if everything that was decided could be afforded.
    async fn decide_once(&self, memory: &mut Memory) -> Result<bool> {
        let now = self.db().now();
        self.hold_those_without_money(memory, now);
        let decided = memory.scheduler.decide(millis(now));
        let (decided, afforded) = self.only_affordable(memory, decided, now).await?;
        let mut leaving = Vec::new();
        let mut refused = Vec::new();
        for decision in decided {
            match decision {
                Decision::Start { job, placement, after, borrows } => {
                    let after = starts_of(memory, &after);
                    memory.due.push(Due { number: job, placement, after, borrows });
                }
                Decision::Stop { job, why, for_job, lost_gpu_ms } => {
                    note_stop(memory, job, why);
                    let detail = json!({
                        "why": reason(why),
                        "for": for_job.and_then(|other| shown(memory, other)),
                        "lost_gpu_seconds": lost_gpu_ms / 1000,
                    });
                    self.leave(memory, &mut leaving, job, detail, None);
                }
                Decision::Resize { job, placement, after, for_job } => {
                    let detail = json!({
                        "why": "resized",
                        "for": for_job.and_then(|other| shown(memory, other)),
                        "to": by_name_of(&placement, self.pool_list()),
                    });
                    self.leave(memory, &mut leaving, job, detail, Some((placement, after)));
                }
                Decision::Move { job, placement, after, for_job, lost_gpu_ms } => {
                    let detail = json!({
                        "why": "moved",
                        "for": shown(memory, for_job),
                        "to": by_name_of(&placement, self.pool_list()),
                        "lost_gpu_seconds": lost_gpu_ms / 1000,
                    });
                    self.leave(memory, &mut leaving, job, detail, Some((placement, after)));
                }
                Decision::Refuse { job, why } => {
                    let Some(task) = memory.task(job) else { continue };
                    let Some(live) = memory.jobs.get(&task.job) else { continue };
                    let error = explain(
                        &why,
                        &live.job.definition,
                        live.job.pool.as_str(),
                        (&memory.tree, self.pool_list()),
                    );
                    let text = error.message().to_owned();
                    if memory.flight_of(task).is_some() {
                        let detail = json!({ "why": text });
                        self.tell_to_leave(memory, &mut leaving, task, Purpose::Refuse, detail);
                    } else {
                        refused.push((task, text));
                    }
                }
            }
        }
        self.give_up_all(memory, refused).await?;
        self.write_leaving(memory, leaving).await?;
        Ok(self.start_those_due(memory).await? && afforded)
    }

    /// Lets a task leave its nodes, to wait or to go on elsewhere. One that was decided to start and
    /// has not is simply not started.
    fn leave(
        &self,
        memory: &mut Memory,
        leaving: &mut Vec<Leaving>,
        number: Number,
        detail: Value,
        then: Option<(Vec<Placed>, Vec<Number>)>,
    ) {
        let Some(task) = memory.task(number) else { return };
        let then = then.map(|(placement, after)| (placement, starts_of(memory, &after)));
        if let Some(at) = memory.due.iter().position(|due| due.number == number) {
            let now = millis(self.db().now());
            if let Some((placement, after)) = then {
                let due = &mut memory.due[at];
                due.placement = placement;
                due.after.extend(after);
                memory.scheduler.apply(now, Event::Resized(number));
            } else {
                memory.drop_due(|other| other == number);
                memory.scheduler.apply(now, Event::Stopped(number));
            }
            return;
        }
        let purpose = if then.is_some() { Purpose::Move } else { Purpose::Preempt };
        self.tell_to_leave(memory, leaving, task, purpose, detail);
        let id = memory.flight_of(task).map(|flight| flight.id);
        if let Some(flight) = id.and_then(|id| memory.flights.get_mut(&id)) {
            if then.is_some() {
                memory.going_on.insert(task);
            }
            flight.then = then;
        }
    }

    /// Notes that a start is to end. One that was told so before keeps its first purpose, unless the
    /// new one is final.
    fn tell_to_leave(
        &self,
        memory: &mut Memory,
        leaving: &mut Vec<Leaving>,
        task: TaskId,
        purpose: Purpose,
        detail: Value,
    ) {
        let now = self.db().now();
        let grace = self.config().checkpoint_grace.get();
        let Some(id) = memory.flight_of(task).map(|flight| flight.id) else { return };
        let saves =
            memory.jobs.get(&task.job).is_some_and(|live| live.job.definition.checkpoint.is_some());
        let Some(flight) = memory.flights.get_mut(&id) else { return };
        let gentle = matches!(purpose, Purpose::Preempt | Purpose::Move | Purpose::Reclaim);
        if flight.purpose.is_some() && gentle {
            return;
        }
        // Whoever has to end for money may still save what that bought.
        let may_save = gentle || matches!(purpose, Purpose::Budget | Purpose::Overdrawn);
        flight.purpose = Some(purpose);
        let runs = flight.state == State::Running && matches!(flight.launched, Launched::Yes(_));
        if may_save && saves && runs {
            flight.state = State::Checkpointing;
            (flight.notified, flight.saves_until) = (Some(now), Some(now + grace));
            self.pass_on(flight.pool, id, Notice::Checkpoint);
        } else {
            flight.saves_until = Some(now);
        }
        leaving.push(Leaving { id, state: flight.state, purpose, detail });
    }

    /// Ends a start for a reason of its own: see [`Purpose`].
    pub(super) async fn end_early(
        &self,
        memory: &mut Memory,
        task: TaskId,
        purpose: Purpose,
        detail: Value,
    ) -> Result<()> {
        let mut leaving = Vec::new();
        self.tell_to_leave(memory, &mut leaving, task, purpose, detail);
        self.write_leaving(memory, leaving).await
    }

    async fn write_leaving(&self, memory: &mut Memory, leaving: Vec<Leaving>) -> Result<()> {
        if leaving.is_empty() {
            return Ok(());
        }
        let ctx = Ctx::system(super::NAME);
        let mut rows = Vec::with_capacity(leaving.len());
        for Leaving { id, state, purpose, detail } in leaving {
            let Some(live) = memory.jobs.get_mut(&id.task.job) else { continue };
            let of = resource(&live.project, &id.task.job.to_string(), false);
            ctx.authorize(&JOB_RUN, &of).await?;
            let Some((now, row)) = live.tasks.get_mut(&id.task.task) else { continue };
            *now = state;
            let row = row.clone();
            let tally = live.job.tasks;
            live.job.state = tally.state(state);
            rows.push((id, state, purpose, detail, row, (live.job.state, tally), of));
        }
        let write = move |tx: &mut falaj_store::db::Tx<'_>| {
            for (id, state, purpose, detail, row, (whole, tally), of) in &rows {
                jobs::start_is(tx, *id, *state, None, Some(purpose.as_str()))?;
                jobs::put_task(tx, id.task, *state, row)?;
                jobs::progress(tx, id.task.job, (*whole, tally), None)?;
                jobs::note_decision(tx, id.task, "stop", detail)?;
                let change = Change::new(&JOB_RUN, of)
                    .event("job.stopping", &told(id.task, *state))
                    .detail("task", id.task.task)
                    .detail("why", purpose.as_str());
                tx.record(&ctx, change)?;
            }
            Ok(())
        };
        self.commit(memory, write).await
    }

    /// Passes something on to an executor, without waiting. What fails is tried again by the next pass
    /// that sees a need.
    pub(super) fn pass_on(&self, pool: usize, id: StartId, notice: Notice) {
        let Some(pool) = self.pool_list().list.get(pool) else { return };
        let executor = pool.executor.clone();
        tokio::task::spawn_blocking(move || {
            let told = id.outside().map(|attempt| executor.tell(&attempt, notice));
            if let Ok(Err(error)) = told {
                tracing::debug!(start = %id, %error, ?notice, "an executor was not told");
            }
        });
    }
}

/// What leaves spot was not asked, and goes on; what is stopped for any other reason waits like all.
fn note_stop(memory: &mut Memory, number: Number, why: StopReason) {
    let Some(task) = memory.task(number) else { return };
    if why != StopReason::LeavesSpot {
        memory.going_on.remove(&task);
    } else if memory.flight_of(task).is_some() {
        memory.going_on.insert(task);
    }
}

/// The starts on their way of some tasks.
fn starts_of(memory: &Memory, numbers: &[Number]) -> Vec<StartId> {
    let flight = |number: &Number| Some(memory.flight_of(memory.task(*number)?)?.id);
    numbers.iter().filter_map(flight).collect()
}

fn shown(memory: &Memory, number: Number) -> Option<String> {
    let task = memory.task(number)?;
    Some(if task.task == 0 { task.job.to_string() } else { format!("{}/{}", task.job, task.task) })
}

fn reason(why: StopReason) -> &'static str {
    match why {
        StopReason::Reclaimed => "its queue lived on what another owns, who needs it now",
        StopReason::Priority => "something of its own queue is more urgent",
        StopReason::Order => "the order of the policy",
        StopReason::Starvation => "somebody has waited too long",
        StopReason::NodeLost => "one of its nodes is gone",
        StopReason::QuotaCut => "a quota became smaller",
        StopReason::LeavesSpot => "its deadline allows no more risk on spot",
    }
}
