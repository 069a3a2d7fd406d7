//! Looking after what runs: checkpoints that count by now, ranks that hang, budgets that are spent.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use falaj_base::{Result, Timestamp};
use falaj_scheduler::Event;
use falaj_store::db::Tx;
use serde_json::json;

use super::flight::{Launched, Purpose};
use super::memory::Memory;
use crate::checkpoint::store as checkpoints;
use crate::job::{State, millis};
use crate::name::{JobId, StartId, TaskId};
use crate::{Training, blocking};

/// How often folders, steps and budgets are looked at.
const EVERY: Duration = Duration::from_secs(2);
/// Jobs of more starts than this are heard with all else, and not at once.
const HEARD_AT_ONCE: usize = 16;
/// Pauses between steps that are remembered of a start.
const REMEMBERED: usize = 101;
/// How many times the usual pause is too long.
const TOO_LONG: u32 = 5;
/// The most of its stacks that is kept.
const MOST_STACKS: usize = 256 << 10;

/// How the ranks of a start go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    ranks: HashMap<u32, Known>,
    /// Pauses between steps, the newest last, in milliseconds for each step.
    pauses: Vec<u64>,
}

/// How far a rank is.
#[derive(Clone, Copy, Debug)]
struct Known {
    step: i64,
    /// Since when it is there.
    since: Timestamp,
    /// When it last said anything.
    heard: Timestamp,
}

impl Pace {
    /// Takes in how far ranks are.
    pub(crate) fn hear(&mut self, steps: &[(u32, i64, Timestamp)]) {
        for &(rank, step, at) in steps {
            let new = Known { step, since: at, heard: at };
            match self.ranks.get_mut(&rank) {
                Some(known) if step > known.step => {
                    let taken = u64::try_from(at.since(known.since).as_millis());
                    let steps = u64::try_from(step.saturating_sub(known.step)).unwrap_or(1).max(1);
                    self.pauses.push(taken.unwrap_or(u64::MAX) / steps);
                    *known = new;
                }
                // It validates or saves its work: that is life, and not its pace.
                Some(known) => known.heard = known.heard.max(at),
                None => drop(self.ranks.insert(rank, new)),
            }
        }
        let extra = self.pauses.len().saturating_sub(REMEMBERED);
        self.pauses.drain(..extra);
    }

    /// The rank that has been still for too long: for five times the usual pause, and at least for
    /// `least`. One that reported one step only has no usual pause yet.
    pub(crate) fn hangs(&self, now: Timestamp, least: Duration) -> Option<(u32, Duration)> {
        if self.pauses.is_empty() {
            return None;
        }
        let mut sorted = self.pauses.clone();
        sorted.sort_unstable();
        let usual = Duration::from_millis(sorted[sorted.len() / 2]);
        let limit = least.max(usual.saturating_mul(TOO_LONG));
        let still = self.ranks.iter().map(|(rank, known)| (*rank, now.since(known.heard)));
        still
            .filter(|(_, still)| *still > limit)
            .max_by_key(|(rank, still)| (*still, std::cmp::Reverse(*rank)))
    }
}

impl Training {
    /// Ranks of some jobs reported something. A large array reports all the time.
    pub(super) async fn hear_of_reports(
        &self,
        memory: &mut Memory,
        reported: HashSet<JobId>,
    ) -> Result<()> {
        let mut now = Vec::new();
        for job in reported {
            let flights = flights_of(memory, job);
            if flights.len() > HEARD_AT_ONCE {
                memory.reported.insert(job);
            } else {
                now.extend(flights);
            }
        }
        self.hear(memory, now).await
    }

    /// Reads what ranks of some starts reported.
    async fn hear(&self, memory: &mut Memory, starts: Vec<StartId>) -> Result<()> {
        if starts.is_empty() {
            return Ok(());
        }
        let read = move |tx: &mut Tx<'_>| {
            let one = |id: StartId| {
                Ok((id, checkpoints::last_whole(tx, id.task)?, checkpoints::steps(tx, id)?))
            };
            starts.into_iter().map(one).collect::<Result<Vec<_>>>()
        };
        for (id, saved, steps) in self.db().read(read).await? {
            memory.paces.entry(id).or_default().hear(&steps);
            if let Some(saved) = saved.filter(|saved| saved.attempt == id.attempt) {
                self.saved(memory, id, saved.whole_at);
            }
        }
        Ok(())
    }

    /// The work of a start until then is safe. One that was only to save it can be stopped now.
    fn saved(&self, memory: &mut Memory, id: StartId, at: Timestamp) {
        let now = self.db().now();
        let Some(flight) = memory.flights.get_mut(&id) else { return };
        if flight.state == State::Checkpointing
            && flight.saves_until.is_some_and(|until| until > now)
            && flight.notified.is_some_and(|notified| at >= notified)
        {
            flight.saves_until = Some(now);
        }
        let event = Event::Checkpointed { job: flight.number, of: millis(at) };
        memory.scheduler.apply(millis(now), event);
    }

    pub(super) async fn tend(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        if memory.looked.is_some_and(|looked| now.since(looked) < EVERY) {
            return Ok(());
        }
        memory.looked = Some(now);
        let flights = &memory.flights;
        memory.paces.retain(|id, _| flights.contains_key(id));
        let reported = std::mem::take(&mut memory.reported);
        let starts = reported.into_iter().flat_map(|job| flights_of(memory, job)).collect();
        self.hear(memory, starts).await?;
        let running: Vec<StartId> = memory
            .flights
            .values()
            .filter(|flight| matches!(flight.launched, Launched::Yes(_)))
            .filter(|flight| matches!(flight.state, State::Running | State::Checkpointing))
            .map(|flight| flight.id)
            .collect();
        self.look_at_budgets(memory, now).await?;
        for id in running {
            self.look_at_folder(memory, id).await?;
            self.look_for_hang(memory, id, now).await?;
        }
        Ok(())
    }

    async fn look_at_folder(&self, memory: &mut Memory, id: StartId) -> Result<()> {
        let Some(flight) = memory.flights.get(&id) else { return Ok(()) };
        let Some(live) = memory.jobs.get(&id.task.job) else { return Ok(()) };
        let pool = self.pool_list().list.get(flight.pool);
        let sees = pool.is_some_and(|pool| pool.is_server);
        if !sees || live.job.definition.checkpoint.is_none() {
            return Ok(());
        }
        let (job, world) = (live.job.clone(), flight.world);
        if self.look_into_folder(id, &job, world).await? {
            let now = self.db().now();
            self.saved(memory, id, now);
        }
        Ok(())
    }

    async fn look_for_hang(&self, memory: &mut Memory, id: StartId, now: Timestamp) -> Result<()> {
        let least = self.config().hang_after.get();
        let Some((rank, still)) = memory.paces.get(&id).and_then(|pace| pace.hangs(now, least))
        else {
            return Ok(());
        };
        let Some(flight) = memory.flights.get(&id).filter(|flight| flight.purpose.is_none()) else {
            return Ok(());
        };
        tracing::warn!(start = %id, rank, ?still, "a rank makes no progress");
        let Some(pool) = self.pool_list().list.get(flight.pool) else { return Ok(()) };
        let (executor, attempt) = (pool.executor.clone(), id.outside()?);
        let stacks = blocking(move || Ok(executor.stacks(&attempt).ok().flatten())).await?;
        if let Some(flight) = memory.flights.get_mut(&id) {
            flight.stacks = stacks.map(|text| text.chars().take(MOST_STACKS).collect());
        }
        let detail = json!({ "why": "no progress", "rank": rank, "seconds": still.as_secs() });
        self.end_early(memory, id.task, Purpose::Hang, detail).await
    }
}

fn flights_of(memory: &Memory, job: JobId) -> Vec<StartId> {
    let Some(live) = memory.jobs.get(&job) else { return Vec::new() };
    let tasks = live.tasks.keys().map(|task| TaskId { job, task: *task });
    tasks.filter_map(|task| Some(memory.flight_of(task)?.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_hangs_when_it_is_still_for_long_and_for_longer_than_usual() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let least = Duration::from_mins(2);
        let mut pace = Pace::default();
        pace.hear(&[(0, 1, at(0)), (1, 1, at(0))]);
        assert_eq!(pace.hangs(at(100_000), least), None, "its pace is not known");
        pace.hear(&[(0, 2, at(60)), (1, 2, at(61))]);
        // A minute for each step: five of them are more than two minutes.
        assert_eq!(pace.hangs(at(350), least), None);
        assert_eq!(pace.hangs(at(370), least).map(|(rank, _)| rank), Some(0));
        // Several steps at once are several.
        pace.hear(&[(0, 62, at(120)), (1, 62, at(121)), (0, 63, at(121)), (1, 63, at(122))]);
        assert_eq!(pace.hangs(at(240), least), None);
        assert_eq!(pace.hangs(at(250), least).map(|(rank, _)| rank), Some(0));
        // One that goes on does not excuse the other.
        pace.hear(&[(1, 64, at(249))]);
        assert_eq!(pace.hangs(at(250), least).map(|(rank, _)| rank), Some(0));
        pace.hear(&[(0, 64, at(251))]);
        assert_eq!(pace.hangs(at(252), least), None);
        // One that says something at the same step lives, and its pace is what it was.
        let pauses = pace.pauses.clone();
        pace.hear(&[(0, 64, at(400)), (1, 64, at(400))]);
        assert_eq!((pace.hangs(at(600), least), &pace.pauses), (None, &pauses));
        assert!(pace.hangs(at(701), least).is_some());
    }
}
