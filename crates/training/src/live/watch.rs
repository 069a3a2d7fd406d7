//! What launches came to, and what executors tell.
//!
//! Must hold: what an executor has was taken, whatever it said when it was asked. A start of which
//! nobody knows whether it was taken does not end before its executor was told to kill it, and then
//! told that it has it not.

use std::collections::HashMap;
use std::time::Duration;

use falaj_base::{Ctx, Result, Timestamp};
use falaj_executors::{AttemptId, End, ExecutorError, Notice, Observed, Phase, RankEnd};
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::busy::Task;
use super::end::Landed;
use super::flight::{Flight, Launched};
use super::memory::Memory;
use super::told;
use crate::job::store as jobs;
use crate::job::{State, resource};
use crate::name::{JobId, StartId};
use crate::{JOB_RUN, Training};

/// The longest pause before an executor that did not answer is asked again.
const LONGEST: Duration = Duration::from_mins(1);
/// How often an executor that runs nothing of ours, as far as we know, is asked all the same.
const SWEEP: Duration = Duration::from_secs(30);
/// How long a pass waits to hear what ended starts have used.
const MEASURED_WITHIN: Duration = Duration::from_secs(1);

impl Training {
    pub(super) async fn hear_of_launches(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        let launched = std::mem::take(&mut self.live().mail().launched);
        let mut failed = Vec::new();
        for (id, outcome) in launched {
            let Some(flight) = memory.flights.get_mut(&id) else { continue };
            match outcome {
                Ok(()) => flight.launched = Launched::Yes(now),
                // It was found meanwhile, so it was taken.
                Err(error) if matches!(flight.launched, Launched::Yes(_)) => {
                    tracing::debug!(start = %id, %error, "an executor has what it did not answer");
                }
                Err(ExecutorError::Away(why)) => {
                    let pause = Duration::from_secs(1 << flight.launches.min(6)).min(LONGEST);
                    flight.launched = Launched::AgainAt(now + pause);
                    tracing::warn!(start = %id, why, "an executor did not answer");
                }
                Err(error @ (ExecutorError::Refused(_) | ExecutorError::Unknown(_))) => {
                    failed.push(Landed {
                        id,
                        end: End::Failed { rank: 0, how: RankEnd::NotStarted },
                        at: now,
                        isolation: None,
                        cpu_seconds: None,
                        peak_memory: None,
                        says: Some(format!("it was not started: {error}")),
                    });
                }
            }
        }
        self.land(memory, failed).await?;
        // One that is to end is not launched any more: it is told to, as it may have been taken.
        let due = |flight: &&Flight| match flight.launched {
            Launched::AgainAt(at) => at <= now && flight.purpose.is_none(),
            _ => false,
        };
        let again: Vec<StartId> = memory.flights.values().filter(due).map(|it| it.id).collect();
        for id in again {
            self.launch(memory, id);
        }
        Ok(())
    }

    /// Compares what executors tell with what is in mind.
    pub(super) async fn observe(&self, memory: &mut Memory) -> Result<()> {
        let pools = self.pool_list().list.len();
        let homeless = memory.flights.values().filter(|flight| flight.pool >= pools);
        let now = self.db().now();
        let homeless: Vec<Landed> = homeless
            .map(|flight| Landed {
                says: Some("its pool is not there any more".to_owned()),
                // It is no loss that counts, and its task waits until its pool is back.
                ..concluded(flight.id, End::Preempted, now)
            })
            .collect();
        self.land(memory, homeless).await?;
        for (pool, began, seen) in self.ask_what_runs(memory, now).await {
            memory.observed.insert(pool, began);
            match seen {
                Ok(seen) => {
                    self.live().breakers().remove(&pool);
                    self.compare(memory, pool, seen, began).await?;
                }
                Err(error) => {
                    tracing::debug!(pool, %error, "an executor did not tell what runs");
                    let mut breakers = self.live().breakers();
                    breakers.entry(pool).or_default().failed(now, error.to_string());
                }
            }
        }
        Ok(())
    }

    /// What another server ran of a job is gone, somebody says.
    pub(super) async fn lose(&self, memory: &mut Memory, job: JobId) -> Result<()> {
        let now = self.db().now();
        let gone = memory
            .flights
            .values()
            .filter(|flight| flight.id.task.job == job && flight.launched == Launched::Elsewhere);
        let gone = gone.map(|flight| Landed {
            says: Some("it is gone with the server that ran it".to_owned()),
            ..concluded(flight.id, End::Lost, now)
        });
        self.land(memory, gone.collect()).await
    }

    /// Asks all executors that may have something to tell, at the same time. One that is slow is
    /// heard in a later pass.
    async fn ask_what_runs(&self, memory: &mut Memory, now: Timestamp) -> Vec<Told> {
        let mut until = tokio::time::Instant::now();
        for (at, pool) in self.pool_list().list.iter().enumerate() {
            let flies = memory.flights.values().any(|flight| flight.pool == at);
            let last = memory.observed.get(&at);
            let due = flies || last.is_none_or(|last| now.since(*last) >= SWEEP);
            let alone = self.left_alone(at, now).is_some();
            if !due || alone || memory.observing.contains_key(&at) {
                continue;
            }
            let Some(begun) = self.live().busy.begin(Task::Observe(at)) else { continue };
            let executor = pool.executor.clone();
            let asked = tokio::task::spawn_blocking(move || {
                let seen = executor.observe();
                drop(begun);
                seen
            });
            memory.observing.insert(at, (now, asked));
            until = tokio::time::Instant::now() + super::PATIENCE;
        }
        let mut heard = Vec::new();
        for (pool, (began, mut asked)) in std::mem::take(&mut memory.observing) {
            match tokio::time::timeout_at(until, &mut asked).await {
                Ok(seen) => {
                    let failed =
                        |error: tokio::task::JoinError| Err(ExecutorError::Away(error.to_string()));
                    heard.push((pool, began, seen.unwrap_or_else(failed)));
                }
                Err(_) => drop(memory.observing.insert(pool, (began, asked))),
            }
        }
        heard
    }

    async fn compare(
        &self,
        memory: &mut Memory,
        pool: usize,
        seen: Vec<Observed>,
        began: Timestamp,
    ) -> Result<()> {
        let mut there: HashMap<AttemptId, Observed> =
            seen.into_iter().map(|one| (one.attempt.clone(), one)).collect();
        let busy = self.live().busy.clone();
        let mut ends = Vec::new();
        let mut running = Vec::new();
        let mut again = Vec::new();
        let here =
            |flight: &&mut Flight| flight.pool == pool && flight.launched != Launched::Elsewhere;
        for flight in memory.flights.values_mut().filter(here) {
            let Some(found) = there.remove(&flight.id.outside()?) else {
                match flight.launched {
                    Launched::Yes(at) if at < began => {
                        ends.push(concluded(flight.id, End::Lost, began));
                    }
                    Launched::Withdrawn(at) if at < began => {
                        ends.push(concluded(flight.id, End::Stopped, began));
                    }
                    // By us, before we began anew; what comes of it is in the mail.
                    Launched::Unknown if busy.is(Task::Ask(flight.id)) => {
                        flight.launched = Launched::Asking;
                    }
                    // Told to end before it began.
                    Launched::Unknown
                        if flight.state == State::Starting && flight.purpose.is_some() =>
                    {
                        flight.launched = Launched::AgainAt(began);
                    }
                    Launched::Unknown if flight.state == State::Starting => again.push(flight.id),
                    Launched::Unknown => ends.push(concluded(flight.id, End::Lost, began)),
                    _ => {}
                }
                continue;
            };
            match flight.launched {
                Launched::Yes(_) => {}
                Launched::Withdrawn(_) => {
                    // It was not there when it was told.
                    (flight.launched, flight.told) = (Launched::Yes(began), false);
                }
                _ => flight.launched = Launched::Yes(began),
            }
            match found.phase {
                Phase::Running if flight.state == State::Starting => {
                    flight.state = State::Running;
                    flight.waits = None;
                    running.push((flight.id, found.isolation));
                }
                Phase::Pending(why) => flight.waits = why,
                Phase::Running => {}
                Phase::Ended(end) => {
                    let at = found.ended.map_or(began, |ms| {
                        Timestamp::from_micros(i64::try_from(ms).unwrap_or(0).saturating_mul(1000))
                    });
                    ends.push(Landed {
                        id: flight.id,
                        end,
                        // A clock of another machine is not believed beyond what is possible.
                        at: at.clamp(flight.since.min(began), began),
                        isolation: Some(found.isolation),
                        cpu_seconds: None,
                        peak_memory: None,
                        says: None,
                    });
                }
            }
        }
        self.write_begun(memory, running).await?;
        let measured = ends.iter_mut().map(|end| self.measure(memory, end));
        let all = futures::future::join_all(measured);
        if tokio::time::timeout(MEASURED_WITHIN, all).await.is_err() {
            tracing::debug!(pool, "an executor did not tell what ended starts have used");
        }
        self.land(memory, ends).await?;
        for id in again {
            self.launch(memory, id);
        }
        self.clear_away(memory, pool, there.into_keys().collect()).await
    }

    async fn write_begun(&self, memory: &mut Memory, begun: Vec<(StartId, String)>) -> Result<()> {
        if begun.is_empty() {
            return Ok(());
        }
        let ctx = Ctx::system(super::NAME);
        let mut rows = Vec::with_capacity(begun.len());
        for (id, isolation) in begun {
            let Some(live) = memory.jobs.get_mut(&id.task.job) else { continue };
            let Some((state, row)) = live.tasks.get_mut(&id.task.task) else { continue };
            *state = State::Running;
            let row = row.clone();
            live.job.state = live.job.tasks.state(State::Running);
            let of = resource(&live.project, &id.task.job.to_string(), false);
            ctx.authorize(&JOB_RUN, &of).await?;
            let purpose = memory.flights.get(&id).and_then(|flight| flight.purpose);
            rows.push((id, isolation, purpose, row, (live.job.state, live.job.tasks), of));
        }
        let write = move |tx: &mut Tx<'_>| {
            for (id, isolation, purpose, row, (whole, tally), of) in &rows {
                let purpose = purpose.map(super::flight::Purpose::as_str);
                jobs::start_is(tx, *id, State::Running, Some(isolation), purpose)?;
                jobs::put_task(tx, id.task, State::Running, row)?;
                jobs::progress(tx, id.task.job, (*whole, tally), None)?;
                let change = Change::new(&JOB_RUN, of)
                    .event("job.running", &told(id.task, State::Running))
                    .detail("task", id.task.task)
                    .detail("attempt", id.attempt);
                tx.record(&ctx, change)?;
            }
            Ok(())
        };
        self.commit(memory, write).await
    }

    /// What an ended start used, where its executor tells.
    async fn measure(&self, memory: &Memory, landed: &mut Landed) {
        let Some(flight) = memory.flights.get(&landed.id) else { return };
        let Some(pool) = self.pool_list().list.get(flight.pool) else { return };
        let (executor, Ok(attempt)) = (pool.executor.clone(), landed.id.outside()) else { return };
        let asked = tokio::task::spawn_blocking(move || executor.usage(&attempt)).await;
        if let Ok(Ok(Some(usage))) = asked {
            landed.cpu_seconds = Some(usage.cpu_seconds);
            landed.peak_memory = Some(usage.peak_memory_bytes);
        }
    }

    /// What an executor has and we know nothing of: ended and seen to, or never ours.
    async fn clear_away(
        &self,
        memory: &Memory,
        pool: usize,
        strangers: Vec<AttemptId>,
    ) -> Result<()> {
        for attempt in strangers {
            // Names that are not ours are none of our business.
            let Some(id) = StartId::of_outside(&attempt) else { continue };
            if memory.ended.contains_key(&id) || self.live().busy.is(Task::Ask(id)) {
                continue;
            }
            let open = self.db().read(move |tx| jobs::open_of(tx, id)).await?;
            if open.is_some_and(|open| open > 0) {
                continue;
            }
            let executor = self.pool_list().list[pool].executor.clone();
            tokio::task::spawn_blocking(move || {
                let done = executor.tell(&attempt, Notice::Kill).and(executor.forget(&attempt));
                if let Err(error) = done {
                    tracing::debug!(%attempt, %error, "what is left of a start stays for now");
                }
            });
        }
        Ok(())
    }
}

/// What a pool told, and when it was asked.
type Told = (usize, Timestamp, Result<Vec<Observed>, ExecutorError>);

/// An end that no executor told of.
fn concluded(id: StartId, end: End, at: Timestamp) -> Landed {
    Landed { id, end, at, isolation: None, cpu_seconds: None, peak_memory: None, says: None }
}
