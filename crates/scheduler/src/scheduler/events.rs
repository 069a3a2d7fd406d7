//! What each event changes.

use super::{Scheduler, State};
use crate::cluster::{Cluster, Status};
use crate::decision::StopReason;
use crate::event::Event;
use crate::model::{JobId, Millis, NodeId, NodeSpec};

impl Scheduler {
    /// Takes in an event. Time never goes back: an earlier one counts as now. What is not known any
    /// more (a job that ended, a node that went) is passed over.
    pub fn apply(&mut self, at: Millis, event: Event) {
        self.let_pass(at);
        match event {
            Event::QueueSet(spec) => {
                self.quota.set(&spec);
                self.quotas_changed();
            }
            Event::QuotaChanged(queue, quota) => {
                self.quota.set_quota(queue, quota);
                self.quotas_changed();
            }
            Event::NodeUp(spec) => self.node_up(spec),
            Event::NodeDown(node) => self.node_down(node),
            Event::NodeDrained(node) => self.cluster.set_status(node, Status::Drained),
            Event::Submitted(spec) => self.submit(spec),
            Event::Restored(restored) => self.restore(*restored),
            Event::Again { job, first } => self.again(job, first),
            Event::Checkpointed { job, of } => self.checkpointed(job, of),
            Event::Stopped(job) => self.stopped(job),
            Event::Resized(job) => {
                if let Some(&slot) = self.ids.get(&job) {
                    self.has_left(slot);
                }
            }
            Event::Finished(job) => self.finished(job),
            Event::Cancelled(job) => {
                if let Some(&slot) = self.ids.get(&job) {
                    self.forget(slot);
                }
            }
            Event::Used { queue, seconds } => {
                if let Some(place) = self.quota.place(queue) {
                    self.quota.used_before(place, &seconds);
                }
            }
            Event::Tick => {}
        }
    }

    fn quotas_changed(&mut self) {
        self.feasible.forget();
        self.quota_cut = true;
    }

    fn node_up(&mut self, spec: NodeSpec) {
        if !Cluster::is_valid(&spec) {
            return;
        }
        self.feasible.forget();
        let id = spec.id;
        match self.cluster.node(id) {
            Some(node) if node.spec == spec => self.cluster.set_status(id, Status::Up),
            Some(_) => {
                // Another machine under the same number: whatever ran there is gone.
                self.node_down(id);
                self.cluster.remove(id);
                self.cluster.add(spec);
            }
            None => self.cluster.add(spec),
        }
    }

    fn node_down(&mut self, id: NodeId) {
        let Some(node) = self.cluster.node(id) else { return };
        let mut slots = node.jobs.clone();
        slots.sort_unstable();
        self.cluster.set_status(id, Status::Down);
        self.cluster.change(id, |node| node.leaving.clear());
        for slot in slots {
            if self.shrink_away_from(slot, id) {
                continue;
            }
            self.lift(slot);
            if let Some(job) = self.job_mut(slot) {
                job.outranks = true;
            }
            self.stop_lifted(slot, StopReason::NodeLost, None);
        }
        if self.reservation.as_ref().is_some_and(|kept| kept.nodes.contains(&id)) {
            self.drop_reservation();
        }
    }

    fn checkpointed(&mut self, job: JobId, of: Millis) {
        let now = self.now;
        let Some(&slot) = self.ids.get(&job) else { return };
        if let Some(job) = self.job_mut(slot).filter(|job| job.is_running()) {
            job.saved = job.saved.max(of.min(now));
        }
    }

    fn stopped(&mut self, job: JobId) {
        let Some(&slot) = self.ids.get(&job) else { return };
        let Some(job) = self.job(slot).filter(|job| job.state == State::Leaving) else { return };
        let outranks = job.outranks;
        self.has_left(slot);
        if outranks {
            let now = self.now;
            if let Some(job) = self.job_mut(slot) {
                job.queued = now;
            }
            self.go_first(slot);
        } else {
            self.enqueue(slot);
        }
    }

    fn finished(&mut self, job: JobId) {
        let Some(&slot) = self.ids.get(&job) else { return };
        let Some(job) = self.job(slot) else { return };
        let standing = self.standing(job);
        if matches!(job.state, State::Running | State::Leaving) {
            self.order.finished(&standing);
        }
        self.forget(slot);
    }
}
