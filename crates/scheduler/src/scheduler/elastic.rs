//! Elastic jobs: they give up nodes above their minimum before anybody is stopped, and grow into
//! what nobody waiting can use.

use super::Scheduler;
use crate::cluster::Filter;
use crate::decision::{Decision, Placed};
use crate::model::{JobId, NodeId};

impl Scheduler {
    /// Books the time at the width so far; called before a width changes.
    fn count_service(&mut self, slot: u32) {
        let now = self.now;
        if let Some(job) = self.job_mut(slot) {
            job.service = job.service_by(now);
            job.counted = now;
            job.resized = now;
        }
    }

    /// Gives back one share; the decision comes later.
    pub(super) fn lift_share(&mut self, slot: u32, placed: &Placed) {
        let Some(job) = self.jobs.get(slot as usize).and_then(Option::as_ref) else { return };
        self.cluster.give_back(slot, &job.spec.per_node, std::slice::from_ref(placed));
        self.quota.release(job.queue, &Self::amounts(job, 1, job.gpu_type));
    }

    pub(super) fn put_back_share(&mut self, slot: u32, placed: &Placed) {
        let Some(job) = self.jobs.get(slot as usize).and_then(Option::as_ref) else { return };
        self.cluster.retake(slot, &job.spec.per_node, std::slice::from_ref(placed));
        self.quota.charge(job.queue, &Self::amounts(job, 1, job.gpu_type));
    }

    /// Decides that a job goes on without shares that were lifted.
    pub(super) fn shrink_lifted(&mut self, slot: u32, lifted: &[Placed], for_job: Option<JobId>) {
        self.count_service(slot);
        let Some(job) = self.job_mut(slot) else { return };
        job.placement.retain(|placed| !lifted.contains(placed));
        job.leaving.extend(lifted.iter().map(|placed| placed.node));
        let (id, placement) = (job.spec.id, job.placement.clone());
        for placed in lifted {
            self.cluster.note_leaving(placed.node, id);
        }
        self.out.push(Decision::Resize { job: id, placement, after: Vec::new(), for_job });
    }

    /// Lets an elastic job go on without a node that is gone. False if it cannot.
    pub(super) fn shrink_away_from(&mut self, slot: u32, node: NodeId) -> bool {
        let Some(job) = self.job(slot) else { return false };
        if job.placement.len() <= usize::from(job.spec.nodes.min) {
            return false;
        }
        let Some(&lost) = job.placement.iter().find(|placed| placed.node == node) else {
            return false;
        };
        self.lift_share(slot, &lost);
        self.shrink_lifted(slot, &[lost], None);
        true
    }

    /// Shares above the minimum, the newest first, of jobs in an order that never varies.
    pub(super) fn surplus(&self) -> Vec<(u32, Placed)> {
        let mut surplus = Vec::new();
        for &slot in &self.elastic {
            let Some(job) = self.job(slot) else { continue };
            let least = usize::from(job.spec.nodes.min).min(job.placement.len());
            surplus.extend(job.placement[least..].iter().rev().map(|placed| (slot, *placed)));
        }
        surplus.sort_by_key(|&(slot, _)| self.job(slot).map(|job| job.spec.priority));
        surplus
    }

    /// Gives elastic jobs more nodes where some are free that nobody waiting could use in this pass.
    pub(super) fn grow_elastic(&mut self) {
        let slots: Vec<u32> = self.elastic.iter().copied().collect();
        for slot in slots {
            self.grow(slot);
        }
    }

    fn grow(&mut self, slot: u32) {
        let Some(job) = self.job(slot) else { return };
        let missing = job.spec.nodes.max.saturating_sub(job.placement.len() as u16);
        let rested = self.now >= job.resized + self.settings.elastic_pause;
        // While it is still leaving nodes it is not moved about.
        if missing == 0 || !rested || !job.leaving.is_empty() {
            return;
        }
        let filter =
            Filter { zones: job.spec.zones, spot: job.spot, types: 1 << job.gpu_type.0, slot };
        let count = missing + job.placement.len() as u16;
        let ask = job.spec.per_node;
        let mut nodes = self.cluster.find(&ask, count, job.spec.topology, &filter);
        nodes.retain(|node| job.placement.iter().all(|placed| placed.node != *node));
        nodes.truncate(missing.into());
        if let crate::model::Topology::Require(level) = job.spec.topology {
            let domain = |id: NodeId| self.cluster.domain(id, level);
            let home = job.placement.first().map(|placed| domain(placed.node));
            nodes.retain(|&node| home.is_none_or(|home| domain(node) == home));
        }
        let queue = job.queue;
        let fits =
            |count: usize| self.quota.fits(queue, &Self::amounts(job, count as u64, job.gpu_type));
        while !nodes.is_empty() && !fits(nodes.len()) {
            nodes.pop();
        }
        if nodes.is_empty() {
            return;
        }
        let amounts = Self::amounts(job, nodes.len() as u64, job.gpu_type);
        let Some(more) = self.cluster.take(slot, &ask, &nodes) else { return };
        self.quota.charge(queue, &amounts);
        self.count_service(slot);
        let after = self.still_leaving(&nodes);
        let Some(job) = self.job_mut(slot) else { return };
        job.placement.extend(more);
        let (id, placement) = (job.spec.id, job.placement.clone());
        self.out.push(Decision::Resize { job: id, placement, after, for_job: None });
    }
}
