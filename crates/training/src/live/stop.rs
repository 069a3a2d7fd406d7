//! Those whose time to save their work is over are stopped.

use std::time::Duration;

use falaj_base::{Ctx, Result, Timestamp};
use falaj_executors::{ExecutorError, Notice};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use tokio::task::JoinHandle;

use super::busy::Work;
use super::flight::{Flight, Launched};
use super::memory::Memory;
use super::told;
use crate::job::store as jobs;
use crate::job::{State, resource};
use crate::name::StartId;
use crate::{JOB_RUN, Training};

/// How long after an executor did not answer it is told again.
const PAUSE: Duration = Duration::from_secs(1);

impl Training {
    pub(super) async fn stop_those_due(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        let due: Vec<(StartId, usize, Notice)> = memory
            .flights
            .values()
            .filter(|flight| !memory.telling.contains_key(&flight.id))
            .filter(|flight| self.left_alone(flight.pool, now).is_none())
            .filter_map(|flight| Some((flight.id, flight.pool, due_notice(flight, now)?)))
            .collect();
        let mut until = tokio::time::Instant::now();
        for (id, pool, notice) in due {
            if let Some(telling) = self.tell_soon(pool, id, notice)? {
                memory.telling.insert(id, telling);
                until = tokio::time::Instant::now() + super::PATIENCE;
            }
        }
        let mut stopping = Vec::new();
        for (id, mut telling) in std::mem::take(&mut memory.telling) {
            let Ok(answer) = tokio::time::timeout_at(until, &mut telling).await else {
                memory.telling.insert(id, telling);
                continue;
            };
            let answer = answer.unwrap_or_else(|error| Err(ExecutorError::Away(error.to_string())));
            let now = self.db().now();
            let Some(flight) = memory.flights.get_mut(&id) else { continue };
            match (answer, flight.launched) {
                // Whether it is there is seen the next time that its executor tells what runs.
                (Ok(()) | Err(ExecutorError::Unknown(_)), Launched::AgainAt(_)) => {
                    (flight.launched, flight.told) = (Launched::Withdrawn(now), true);
                }
                (Ok(()), _) => {
                    flight.told = true;
                    if flight.state != State::Stopping {
                        flight.state = State::Stopping;
                        stopping.push(id);
                    }
                }
                // Nobody to tell: observing finds out what became of it.
                (Err(_), _) => flight.tell_at = Some(now + PAUSE),
            }
        }
        self.write_stopping(memory, stopping).await
    }

    /// Tells an executor something, beside the pass.
    fn tell_soon(
        &self,
        pool: usize,
        id: StartId,
        notice: Notice,
    ) -> Result<Option<JoinHandle<Result<(), ExecutorError>>>> {
        let Some(executor) = self.pool_list().list.get(pool).map(|it| it.executor.clone()) else {
            return Ok(None);
        };
        let attempt = id.outside()?;
        let permits = self.live().busy.permits(Work::Tell(pool));
        Ok(Some(tokio::spawn(async move {
            let permit = permits.acquire_owned().await;
            let told = tokio::task::spawn_blocking(move || executor.tell(&attempt, notice)).await;
            drop(permit);
            told.unwrap_or_else(|error| Err(ExecutorError::Away(error.to_string())))
        })))
    }

    async fn write_stopping(&self, memory: &mut Memory, stopping: Vec<StartId>) -> Result<()> {
        if stopping.is_empty() {
            return Ok(());
        }
        let ctx = Ctx::system(super::NAME);
        let mut rows = Vec::new();
        for id in stopping {
            let purpose = memory.flights.get(&id).and_then(|flight| flight.purpose);
            let Some(live) = memory.jobs.get_mut(&id.task.job) else { continue };
            let Some((state, row)) = live.tasks.get_mut(&id.task.task) else { continue };
            *state = State::Stopping;
            let row = row.clone();
            live.job.state = live.job.tasks.state(State::Stopping);
            let of = resource(&live.project, &id.task.job.to_string(), false);
            ctx.authorize(&JOB_RUN, &of).await?;
            rows.push((id, purpose, row, (live.job.state, live.job.tasks), of));
        }
        let write = move |tx: &mut Tx<'_>| {
            for (id, purpose, row, (whole, tally), of) in &rows {
                let purpose = purpose.map(super::flight::Purpose::as_str);
                jobs::start_is(tx, *id, State::Stopping, None, purpose)?;
                jobs::put_task(tx, id.task, State::Stopping, row)?;
                jobs::progress(tx, id.task.job, (*whole, tally), None)?;
                let change = Change::new(&JOB_RUN, of)
                    .event("job.stopping", &told(id.task, State::Stopping))
                    .detail("task", id.task.task);
                tx.record(&ctx, change)?;
            }
            Ok(())
        };
        self.commit(memory, write).await
    }
}

/// What the executor of a start is to be told by now. One that may or may not have been taken has
/// nothing to save that anybody knows of.
fn due_notice(flight: &Flight, now: Timestamp) -> Option<Notice> {
    let due = flight.purpose.is_some()
        && !flight.told
        && flight.tell_at.is_none_or(|at| at <= now)
        && flight.saves_until.is_none_or(|until| until <= now);
    match flight.launched {
        Launched::Yes(_) if due => Some(Notice::Stop),
        Launched::AgainAt(_) if due => Some(Notice::Kill),
        _ => None,
    }
}
