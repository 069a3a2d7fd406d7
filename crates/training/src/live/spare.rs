//! Money is asked for when a start is decided, and nobody leaves its nodes for one that has none.
//!
//! Must hold: of what was decided together, no more starts are made than there is money for. Whoever was
//! to leave its nodes, to shrink or to move for a start that is not made goes on where it is, unless
//! another start needs those nodes as well.

use std::collections::HashSet;

use falaj_base::{Result, Timestamp};
use falaj_scheduler::why::Why;
use falaj_scheduler::{Decision, Event, JobId as Number, Placed, Restored, RunningAt, StopReason};

use super::memory::{Memory, by_number_of};
use super::purse::running;
use crate::Training;
use crate::checkpoint::store as checkpoints;
use crate::cost::Rates;
use crate::job::millis;

impl Training {
    /// What was decided, without what there is no money for; false if there was something.
    pub(super) async fn only_affordable(
        &self,
        memory: &mut Memory,
        mut decisions: Vec<Decision>,
        now: Timestamp,
    ) -> Result<(Vec<Decision>, bool)> {
        if memory.ledger.is_empty() {
            return Ok((decisions, true));
        }
        let mut refused: HashSet<Number> = HashSet::new();
        for decision in &decisions {
            if let Decision::Start { job, placement, .. } = decision
                && !self.keeps_money_for(memory, *job, placement, now)
            {
                refused.insert(*job);
            }
        }
        if refused.is_empty() {
            return Ok((decisions, true));
        }
        let mut spared = spared(&decisions, &refused);
        for number in spared.clone() {
            if !self.stays(memory, number, now).await? {
                spared.remove(&number);
            }
        }
        decisions.retain(|decision| {
            let number = decision.job();
            !refused.contains(&number) && !spared.contains(&number)
        });
        Ok((decisions, false))
    }

    /// Keeps the money for a start; otherwise its job waits for some, unknown to the scheduler.
    fn keeps_money_for(
        &self,
        memory: &mut Memory,
        number: Number,
        placement: &[Placed],
        now: Timestamp,
    ) -> bool {
        let Some(task) = memory.task(number) else { return true };
        let Some(live) = memory.jobs.get(&task.job) else { return true };
        // One that has cost what it may ends as a whole, later.
        if memory.going_on.contains(&task) || live.budget.is_some_and(|own| own.is_spent(now)) {
            return true;
        }
        let resources = &live.job.definition.resources;
        let rates = Rates::of(resources, placement, self.pool_list(), self.config());
        let (place, start) = (live.place(), running(&live.job, rates.price, now));
        // It went with another one of its job.
        if !memory.scheduler.knows(number) || !self.affordable(memory, task.job, &start, now) {
            return false;
        }
        memory.ledger.promise(place, &start);
        memory.promised.insert(number, (place, start));
        true
    }

    /// Lets a start that was to leave its nodes, or some of them, go on as if nothing had been decided.
    async fn stays(&self, memory: &mut Memory, number: Number, now: Timestamp) -> Result<bool> {
        let Some(task) = memory.task(number) else { return Ok(false) };
        let Some(flight) = memory.flight_of(task) else { return Ok(false) };
        let (nodes, pool, since) = (flight.nodes.clone(), flight.pool, millis(flight.since));
        let Some(placement) = by_number_of(&nodes, pool, self.pool_list()) else {
            return Ok(false);
        };
        let Ok(mut spec) = self.spec_of(memory, task.job, millis(now))? else { return Ok(false) };
        spec.id = number;
        let saved = self.db().read(move |tx| checkpoints::last_whole(tx, task)).await?;
        let saved = saved.map_or(0, |saved| millis(saved.whole_at));
        let Some(live) = memory.jobs.get(&task.job) else { return Ok(false) };
        let submitted = millis(live.job.created_at);
        let ran = live.tasks.get(&task.task).map_or(0, |(_, row)| row.ran_ms);
        let running = Some(RunningAt { placement, since, saved });
        let restored = Restored { spec, submitted, ran, running };
        memory.scheduler.apply(millis(now), Event::Cancelled(number));
        memory.scheduler.apply(millis(now), Event::Restored(Box::new(restored)));
        Ok(matches!(memory.scheduler.why(number), Some(Why::Running { .. })))
    }
}

/// Who was to leave for those that are refused, and for nobody else.
fn spared(decisions: &[Decision], refused: &HashSet<Number>) -> HashSet<Number> {
    let for_them = |decision: &&Decision| match decision {
        // What has to leave its node for reasons of its own leaves it.
        Decision::Stop { why: StopReason::NodeLost | StopReason::QuotaCut, .. }
        | Decision::Start { .. }
        | Decision::Refuse { .. } => false,
        Decision::Stop { for_job, .. } | Decision::Resize { for_job, .. } => {
            for_job.is_some_and(|other| refused.contains(&other))
        }
        Decision::Move { for_job, .. } => refused.contains(for_job),
    };
    let mut spared: HashSet<Number> =
        decisions.iter().filter(for_them).map(Decision::job).collect();
    loop {
        // What is not refused and not spared needs those gone whom it names.
        let acts = decisions
            .iter()
            .filter(|it| !refused.contains(&it.job()) && !spared.contains(&it.job()));
        let needed: HashSet<Number> = acts.flat_map(after).copied().collect();
        let before = spared.len();
        spared.retain(|number| !needed.contains(number));
        if spared.len() == before {
            return spared;
        }
    }
}

/// Who has to leave before something is done.
fn after(decision: &Decision) -> &[Number] {
    match decision {
        Decision::Start { after, .. }
        | Decision::Resize { after, .. }
        | Decision::Move { after, .. } => after,
        Decision::Stop { .. } | Decision::Refuse { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(job: u64, after: &[u64]) -> Decision {
        let after = after.iter().copied().map(Number).collect();
        Decision::Start { job: Number(job), placement: Vec::new(), after, borrows: false }
    }

    fn stop(job: u64, for_job: u64) -> Decision {
        let (job, for_job) = (Number(job), Some(Number(for_job)));
        Decision::Stop { job, why: StopReason::Priority, for_job, lost_gpu_ms: 0 }
    }

    fn moved(job: u64, for_job: u64, after: &[u64]) -> Decision {
        Decision::Move {
            job: Number(job),
            placement: Vec::new(),
            after: after.iter().copied().map(Number).collect(),
            for_job: Number(for_job),
            lost_gpu_ms: 0,
        }
    }

    #[test]
    fn nobody_leaves_for_one_that_does_not_start_unless_another_needs_it() {
        let found = |decisions: &[Decision], refused: &[u64]| {
            let refused = refused.iter().copied().map(Number).collect();
            let mut found: Vec<u64> =
                spared(decisions, &refused).into_iter().map(|number| number.0).collect();
            found.sort_unstable();
            found
        };
        let two = [stop(1, 10), stop(2, 20), start(10, &[1]), start(20, &[2])];
        assert_eq!(found(&two, &[10]), [1]);
        assert_eq!(found(&two, &[10, 20]), [1, 2]);
        assert!(found(&two, &[]).is_empty());
        // The other uses what the first freed.
        let shared = [stop(1, 10), start(10, &[1]), start(20, &[1])];
        assert!(found(&shared, &[10]).is_empty());
        // One moves onto nodes of another: if it has to, so has the other.
        let chain = [stop(1, 10), moved(2, 10, &[1]), start(10, &[2]), start(20, &[2])];
        assert!(found(&chain, &[10]).is_empty());
        assert_eq!(found(&chain, &[10, 20]), [1, 2]);
    }
}
