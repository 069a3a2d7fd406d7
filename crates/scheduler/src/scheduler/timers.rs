//! What becomes due by time alone: patience that ends, deadlines that near.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Scheduler, State};
use crate::cluster::Filter;
use crate::decision::StopReason;
use crate::model::{Millis, Spot};

/// A job in a slot, and which of those that were ever there.
type Whose = (u32, u32);

#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    patience: BinaryHeap<Reverse<(Millis, Whose)>>,
    deadlines: BinaryHeap<Reverse<(Millis, Whose)>>,
}

impl Timers {
    pub(super) fn next(&self) -> Option<Millis> {
        let patience = self.patience.peek().map(|Reverse((at, _))| *at);
        let deadlines = self.deadlines.peek().map(|Reverse((at, _))| *at);
        [patience, deadlines].into_iter().flatten().min()
    }
}

/// Takes one entry that is due.
fn due(heap: &mut BinaryHeap<Reverse<(Millis, Whose)>>, now: Millis) -> Option<Whose> {
    let Reverse((at, whose)) = *heap.peek()?;
    (at <= now).then(|| {
        heap.pop();
        whose
    })
}

impl Scheduler {
    /// Starts the clock of a job's patience. Called whenever it begins to wait.
    pub(super) fn arm_patience(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        if let Some(patience) = self.order.patience(&self.standing(job)) {
            let entry = (job.queued.saturating_add(patience), (slot, job.generation));
            self.timers.patience.push(Reverse(entry));
        }
    }

    /// Starts the clock of a deadline. Called once, when it is submitted.
    pub(super) fn arm_deadline(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        if job.spec.spot != Spot::UntilDeadlineNears {
            return;
        }
        if let Some(at) = self.last_safe_moment(slot) {
            // The generation changes whenever the job queues; a deadline outlives that.
            self.timers.deadlines.push(Reverse((at, (slot, job.sequence as u32))));
        }
    }

    /// Until when a job can rely on spot and still finish in time if that fails.
    fn last_safe_moment(&self, slot: u32) -> Option<Millis> {
        let job = self.job(slot)?;
        let limit = job.spec.time_limit?;
        let safe = if job.is_running() { job.saved.saturating_sub(job.started) } else { 0 };
        let left = limit.saturating_sub(job.ran + safe);
        let deadline = job.spec.deadline?;
        Some(deadline.saturating_sub(left).saturating_sub(self.settings.spot_margin))
    }

    /// Those who have waited too long go first from now on.
    pub(super) fn raise_starving(&mut self) {
        while let Some((slot, generation)) = due(&mut self.timers.patience, self.now) {
            let starving = self
                .job(slot)
                .is_some_and(|job| job.generation == generation && job.state == State::Waiting);
            if starving {
                self.leave_class(slot);
                self.go_first(slot);
            }
        }
    }

    /// Those whose deadline nears use spot no more.
    pub(super) fn leave_spot(&mut self) {
        while let Some((slot, sequence)) = due(&mut self.timers.deadlines, self.now) {
            let Some(job) = self.job(slot).filter(|job| job.sequence as u32 == sequence) else {
                continue;
            };
            let at = self.last_safe_moment(slot).unwrap_or(self.now);
            if at > self.now {
                self.timers.deadlines.push(Reverse((at, (slot, sequence))));
                continue;
            }
            match job.state {
                State::Waiting => {
                    let spot = self.spot_from_now(slot);
                    self.leave_class(slot);
                    self.set_spot(slot, spot);
                    self.go_first(slot);
                }
                State::First | State::Leaving => {
                    let spot = self.spot_from_now(slot);
                    self.set_spot(slot, spot);
                }
                State::Running => self.move_off_spot(slot, sequence),
            }
        }
    }

    /// None, unless there is nothing else that it could ever run on.
    fn spot_from_now(&self, slot: u32) -> Spot {
        let Some(job) = self.job(slot) else { return Spot::Never };
        let spec = &job.spec;
        let filter = Filter { zones: spec.zones, spot: Spot::Never, types: u8::MAX, slot };
        let (hold, _) = self.cluster.could_hold(&spec.per_node, spec.topology, &filter);
        if hold >= spec.nodes.min.into() { Spot::Never } else { Spot::Allowed }
    }

    fn set_spot(&mut self, slot: u32, spot: Spot) {
        if let Some(job) = self.job_mut(slot) {
            job.spot = spot;
        }
    }

    /// Stops a job that runs on spot, if there is room elsewhere now; looks again later otherwise.
    fn move_off_spot(&mut self, slot: u32, sequence: u32) {
        let Some(job) = self.job(slot) else { return };
        let on_spot = |p: &crate::decision::Placed| {
            self.cluster.node(p.node).is_some_and(|node| node.spec.spot)
        };
        if !job.placement.iter().any(on_spot) {
            return;
        }
        let filter = Filter { spot: Spot::Never, types: u8::MAX, zones: job.spec.zones, slot };
        let count = job.spec.nodes.min;
        let found = self.cluster.find(&job.spec.per_node, count, job.spec.topology, &filter);
        if found.len() < usize::from(count) {
            let again = self.now + self.settings.spot_margin / 10 + 1;
            self.timers.deadlines.push(Reverse((again, (slot, sequence))));
            return;
        }
        self.set_spot(slot, Spot::Never);
        if let Some(job) = self.job_mut(slot) {
            job.outranks = true;
        }
        self.lift(slot);
        self.stop_lifted(slot, StopReason::LeavesSpot, None);
    }
}
