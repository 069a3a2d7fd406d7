//! From waiting to running and back.

use super::{Scheduler, State};
use crate::decision::{Decision, StopReason};
use crate::model::{JobId, NodeId};
use crate::waiting::{Lane, Score};

impl Scheduler {
    /// Puts a job into its class.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        let fresh = job.first_start.is_none() && !self.order.tells_fresh_jobs_apart();
        let lane = if fresh { Lane::Fresh } else { Lane::Scored(Score::of(self.score(job))) };
        let mut shape = job.shape();
        shape.time_limit = self.limit_of_class(job.spec.time_limit);
        let (priority, sequence) = (job.spec.priority, job.sequence);
        let class = self.waiting.class_of(&shape);
        self.waiting.insert(class, priority, lane, sequence, slot);
        self.generation = self.generation.wrapping_add(1);
        let (now, generation) = (self.now, self.generation);
        if let Some(job) = self.job_mut(slot) {
            (job.class, job.lane, job.state) = (class, lane, State::Waiting);
            (job.queued, job.generation) = (now, generation);
        }
        self.arm_patience(slot);
    }

    pub(super) fn leave_class(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        let (class, priority, lane) = (job.class, job.spec.priority, job.lane);
        let sequence = job.sequence;
        self.waiting.remove(class, priority, lane, sequence, slot);
    }

    /// Lets a job go before all classes.
    pub(super) fn go_first(&mut self, slot: u32) {
        let Some(job) = self.job_mut(slot) else { return };
        job.state = State::First;
        job.outranks = false;
        let key = (job.queued, job.sequence, slot);
        self.first.insert(key);
    }

    /// Takes a job out of wherever it waits.
    pub(super) fn leave_line(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        match job.state {
            State::Waiting => self.leave_class(slot),
            State::First => {
                let key = (job.queued, job.sequence, slot);
                self.first.remove(&key);
            }
            State::Leaving | State::Running => {}
        }
        if self.reservation.as_ref().is_some_and(|kept| kept.slot == slot) {
            self.drop_reservation();
        }
    }

    /// Starts a waiting job on nodes that have room. False, and nothing changed, if they have not.
    pub(super) fn start(&mut self, slot: u32, nodes: &[NodeId]) -> bool {
        let Some(job) = self.job(slot) else { return false };
        let (ask, queue, id) = (job.spec.per_node, job.queue, job.spec.id);
        let Some(placement) = self.cluster.take(slot, &ask, nodes) else { return false };
        let kind = self.cluster.gpu_type_of(nodes.first().copied().unwrap_or(NodeId(0)));
        let amounts = ask.amounts(kind).times(nodes.len() as u64);
        let borrows = self.quota.would_borrow(queue, &amounts);
        self.quota.charge(queue, &amounts);
        self.leave_line(slot);
        let index = self.running.len() as u32;
        self.running.push(slot);
        let after = self.still_leaving(nodes);
        let now = self.now;
        let Some(job) = self.job_mut(slot) else { return false };
        job.state = State::Running;
        job.first_start.get_or_insert(now);
        (job.started, job.counted, job.saved, job.resized) = (now, now, now, now);
        job.placement.clone_from(&placement);
        job.gpu_type = kind;
        job.index = index;
        let elastic = job.spec.nodes.min < job.spec.nodes.max;
        let priority = job.spec.priority;
        if elastic {
            self.elastic.insert(slot);
        }
        *self.priorities.entry(priority).or_default() += 1;
        self.out.push(Decision::Start { job: id, placement, after, borrows });
        true
    }

    /// Who has to leave these nodes before somebody else uses them.
    pub(super) fn still_leaving(&self, nodes: &[NodeId]) -> Vec<JobId> {
        let mut after = Vec::new();
        for &id in nodes {
            for &job in self.cluster.node(id).map_or(&[][..], |node| &node.leaving) {
                if !after.contains(&job) {
                    after.push(job);
                }
            }
        }
        after
    }

    /// Gives back what a running job holds. It is still on the list of the running.
    pub(super) fn lift(&mut self, slot: u32) {
        let Some(job) = self.jobs.get(slot as usize).and_then(Option::as_ref) else { return };
        self.cluster.give_back(slot, &job.spec.per_node, &job.placement);
        let amounts = Self::amounts(job, job.placement.len() as u64, job.gpu_type);
        self.quota.release(job.queue, &amounts);
    }

    /// The reverse of `lift`, with nothing in between but other lifts.
    pub(super) fn put_back(&mut self, slot: u32) {
        let Some(job) = self.jobs.get(slot as usize).and_then(Option::as_ref) else { return };
        self.cluster.retake(slot, &job.spec.per_node, &job.placement);
        let amounts = Self::amounts(job, job.placement.len() as u64, job.gpu_type);
        self.quota.charge(job.queue, &amounts);
    }

    /// Ends the run of a job whose capacity was lifted, as far as the books go.
    pub(super) fn end_run(&mut self, slot: u32) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let gpus = job.gpus(job.placement.len());
        job.service = job.service_by(now);
        job.ran = job.ran_by(now);
        let (index, priority) = (job.index, job.spec.priority);
        self.running.swap_remove(index as usize);
        if let Some(&moved) = self.running.get(index as usize)
            && let Some(moved) = self.jobs[moved as usize].as_mut()
        {
            moved.index = index;
        }
        self.elastic.remove(&slot);
        if let Some(count) = self.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&priority);
            }
        }
        self.releases.add(now, gpus);
    }

    /// Decides that a job whose capacity was lifted stops.
    pub(super) fn stop_lifted(&mut self, slot: u32, why: StopReason, for_job: Option<JobId>) {
        let now = self.now;
        let Some(lost_gpu_ms) = self.job(slot).map(|job| job.at_stake(now)) else { return };
        self.end_run(slot);
        let Some(job) = self.job_mut(slot) else { return };
        job.state = State::Leaving;
        job.preemptions += 1;
        let id = job.spec.id;
        let placement = std::mem::take(&mut job.placement);
        let nodes: Vec<NodeId> = placement.iter().map(|placed| placed.node).collect();
        job.leaving.clone_from(&nodes);
        for node in nodes {
            self.cluster.note_leaving(node, id);
        }
        self.out.push(Decision::Stop { job: id, why, for_job, lost_gpu_ms });
    }

    /// A job has left the nodes that it was told to leave.
    pub(super) fn has_left(&mut self, slot: u32) {
        let Some(job) = self.job_mut(slot) else { return };
        let id = job.spec.id;
        for node in std::mem::take(&mut job.leaving) {
            self.cluster.note_left(node, id);
        }
    }

    /// Forgets a job altogether.
    pub(super) fn forget(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        if job.is_running() {
            self.lift(slot);
            self.end_run(slot);
        } else {
            self.leave_line(slot);
        }
        self.has_left(slot);
        if let Some(job) = self.jobs[slot as usize].take() {
            self.demand -= job.gpus(job.spec.nodes.min.into());
            self.ids.remove(&job.spec.id);
            // What an event decided about it has not been told yet, and need not be.
            self.out.retain(|decision| decision.job() != job.spec.id);
            self.free.push(slot);
        }
    }
}
