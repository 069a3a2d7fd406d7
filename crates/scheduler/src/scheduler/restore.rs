//! What a caller that was away needs: jobs as they were when it left, and starts that came to nothing.

use super::{Scheduler, State};
use crate::decision::{Placed, Refusal};
use crate::event::Restored;
use crate::model::{JobId, JobSpec, NodeId, Spot};

impl Scheduler {
    /// Whether a job would be taken in; it is not.
    pub fn check(&mut self, spec: &JobSpec) -> Result<(), Refusal> {
        self.admit(spec)
    }

    /// Whether a job that was taken in before would be taken in again; it is not.
    pub fn check_restored(&mut self, spec: &JobSpec) -> Result<(), Refusal> {
        let spec = self.as_of_now(spec.clone());
        self.admit(&spec)
    }

    /// A deadline that passed meanwhile is no reason to forget a job.
    fn as_of_now(&self, mut spec: JobSpec) -> JobSpec {
        if spec.deadline.is_some_and(|deadline| deadline <= self.now) {
            spec.deadline = None;
            spec.spot = if spec.spot == Spot::Never { Spot::Never } else { Spot::Allowed };
        }
        spec
    }

    /// Takes a job in as it was left. One that runs on nodes that have no room for it any more is
    /// still there: it holds nothing, and waits as soon as it has left. One that runs is taken in
    /// even if nothing like it would be started by now: its nodes are not free before it has left.
    pub(super) fn restore(&mut self, restored: Restored) {
        let Restored { spec, submitted, ran, running } = restored;
        let (id, now) = (spec.id, self.now);
        let spec = self.as_of_now(spec);
        if running.is_some() && !self.ids.contains_key(&id) {
            self.enter(spec);
        } else {
            self.submit(spec);
        }
        let Some(&slot) = self.ids.get(&id) else { return };
        if let Some(job) = self.job_mut(slot) {
            job.submitted = submitted.min(now);
            job.ran = ran;
            job.service = ran as f64 / 1000.0 * job.gpus(job.spec.nodes.min.into());
        }
        let Some(run) = running else { return };
        self.leave_line(slot);
        if self.has_room_at(slot, &run.placement) {
            self.run_again_at(slot, run.placement, run.since, run.saved);
        } else {
            self.leave_from(slot, &run.placement);
        }
    }

    fn has_room_at(&self, slot: u32, placement: &[Placed]) -> bool {
        let Some(job) = self.job(slot) else { return false };
        let distinct = placement
            .iter()
            .enumerate()
            .all(|(at, placed)| placement[..at].iter().all(|other| other.node != placed.node));
        let free = |placed: &Placed| {
            let node = self.cluster.node(placed.node);
            node.is_some_and(|node| node.could_retake(&job.spec.per_node, placed))
        };
        distinct && !placement.is_empty() && placement.iter().all(free)
    }

    fn run_again_at(&mut self, slot: u32, placement: Vec<Placed>, since: u64, saved: u64) {
        let kind = self.cluster.gpu_type_of(placement.first().map_or(NodeId(0), |one| one.node));
        let index = self.running.len() as u32;
        self.running.push(slot);
        let now = self.now;
        let Some(job) = self.job_mut(slot) else { return };
        job.state = State::Running;
        let since = since.min(now);
        job.first_start.get_or_insert(since);
        (job.started, job.counted, job.resized) = (since, since, since);
        job.saved = saved.clamp(since, now);
        (job.placement, job.gpu_type, job.index) = (placement, kind, index);
        let (elastic, priority) = (job.spec.nodes.min < job.spec.nodes.max, job.spec.priority);
        self.put_back(slot);
        if elastic {
            self.elastic.insert(slot);
        }
        *self.priorities.entry(priority).or_default() += 1;
    }

    /// It is on its way out of nodes that others may have been given.
    fn leave_from(&mut self, slot: u32, placement: &[Placed]) {
        let Some(job) = self.job_mut(slot) else { return };
        job.state = State::Leaving;
        job.outranks = true;
        job.leaving = placement.iter().map(|placed| placed.node).collect();
        let (id, nodes) = (job.spec.id, job.leaving.clone());
        for node in nodes {
            self.cluster.note_leaving(node, id);
        }
    }

    /// A start came to nothing: it has left its nodes and waits again.
    pub(super) fn again(&mut self, id: JobId, first: bool) {
        let Some(&slot) = self.ids.get(&id) else { return };
        let Some(state) = self.job(slot).map(|job| job.state) else { return };
        match state {
            State::Waiting | State::First => return,
            State::Running => {
                self.lift(slot);
                self.end_run(slot);
            }
            State::Leaving => {}
        }
        self.has_left(slot);
        let now = self.now;
        if let Some(job) = self.job_mut(slot) {
            job.placement.clear();
            job.queued = now;
        }
        // What an event decided about this run has not been told yet, and need not be.
        self.out.retain(|decision| decision.job() != id);
        if first {
            self.go_first(slot);
        } else {
            self.enqueue(slot);
        }
    }
}
