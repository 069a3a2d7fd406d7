//! What launches came to, and what executors tell.

use std::collections::HashMap;
use std::time::Duration;

use falaj_base::{Ctx, Result, Timestamp};
use falaj_executors::{AttemptId, End, ExecutorError, Notice, Observed, Phase, RankEnd};
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::end::Landed;
use super::flight::Launched;
use super::memory::Memory;
use super::told;
use crate::job::store as jobs;
use crate::job::{State, resource};
use crate::name::StartId;
use crate::{JOB_RUN, Training};

/// The longest pause before an executor that did not answer is asked again.
const LONGEST: Duration = Duration::from_mins(1);

impl Training {
    pub(super) async fn hear_of_launches(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        let launched = std::mem::take(&mut self.live().mail().launched);
        let mut failed = Vec::new();
        for (id, outcome) in launched {
            let Some(flight) = memory.flights.get_mut(&id) else { continue };
            match outcome {
                Ok(()) => flight.launched = Launched::Yes(now),
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
        let due = |flight: &&super::flight::Flight| match flight.launched {
            Launched::AgainAt(at) => at <= now,
            _ => false,
        };
        let again: Vec<StartId> = memory.flights.values().filter(due).map(|it| it.id).collect();
        for id in again {
            // Told to end before it began: there is nothing to launch any more.
            if memory.flights.get(&id).is_some_and(|flight| flight.purpose.is_some()) {
                let landed = concluded(id, End::Stopped, now);
                self.land(memory, vec![landed]).await?;
            } else {
                self.launch(memory, id);
            }
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
                ..concluded(flight.id, End::Lost, now)
            })
            .collect();
        self.land(memory, homeless).await?;
        for pool in 0..self.pool_list().list.len() {
            let any = memory.flights.values().any(|flight| flight.pool == pool);
            if !any && !memory.ended.iter().any(|id| !memory.settling.contains(id)) {
                continue;
            }
            let executor = self.pool_list().list[pool].executor.clone();
            let began = self.db().now();
            let seen = tokio::task::spawn_blocking(move || executor.observe()).await;
            match seen {
                Ok(Ok(seen)) => self.compare(memory, pool, seen, began).await?,
                Ok(Err(error)) => {
                    tracing::debug!(pool, %error, "an executor did not tell what runs");
                }
                Err(error) => tracing::error!(pool, %error, "an executor failed"),
            }
        }
        Ok(())
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
        let mut ends = Vec::new();
        let mut running = Vec::new();
        let mut again = Vec::new();
        for flight in memory.flights.values_mut().filter(|flight| flight.pool == pool) {
            let Some(found) = there.remove(&flight.id.outside()?) else {
                match flight.launched {
                    Launched::Yes(at) if at < began => {
                        ends.push(concluded(flight.id, End::Lost, began));
                    }
                    // Told to end before it began.
                    Launched::Unknown
                        if flight.state == State::Starting && flight.purpose.is_some() =>
                    {
                        ends.push(concluded(flight.id, End::Stopped, began));
                    }
                    Launched::Unknown if flight.state == State::Starting => again.push(flight.id),
                    Launched::Unknown => ends.push(concluded(flight.id, End::Lost, began)),
                    _ => {}
                }
                continue;
            };
            if flight.launched == Launched::Unknown {
                flight.launched = Launched::Yes(began);
            }
            match found.phase {
                Phase::Running if flight.state == State::Starting => {
                    flight.state = State::Running;
                    running.push((flight.id, found.isolation));
                }
                Phase::Running | Phase::Pending(_) => {}
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
        for end in &mut ends {
            self.measure(memory, end).await;
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
            if memory.ended.contains(&id) || memory.settling.contains(&id) {
                continue;
            }
            let row =
                self.db().read(move |tx| jobs::find_start(tx, id.task, Some(id.attempt))).await?;
            if row.is_some_and(|row| row.open > 0) {
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

/// An end that no executor told of.
fn concluded(id: StartId, end: End, at: Timestamp) -> Landed {
    Landed { id, end, at, isolation: None, cpu_seconds: None, peak_memory: None, says: None }
}
