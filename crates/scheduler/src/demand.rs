//! What waits for more nodes, for whoever brings nodes: jobs that are alike, together.

use crate::cluster::Status;
use crate::model::{Ask, Millis, NodeId, Spot, Topology, Width, ZoneSet};
use crate::scheduler::{Job, Scheduler};

/// Jobs that are alike and wait for nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub ask: Ask,
    pub nodes: Width,
    pub zones: ZoneSet,
    pub spot: Spot,
    pub topology: Topology,
    /// How many of them their quota has room for.
    pub jobs: usize,
    /// Since when the first of them waits.
    pub since: Millis,
}

/// A node, and what is free on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    pub status: Status,
    /// Jobs on it, those that are leaving included.
    pub jobs: usize,
    /// Thousandths of a core.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// GPUs that nobody has any part of.
    pub gpus: u8,
}

impl Scheduler {
    /// What waits and would start if there were more nodes, the longest waiting first; at most so many
    /// groups. Whoever waits for its quota is not among them: nodes would not help.
    #[must_use]
    pub fn demand(&self, most: usize) -> Vec<Demand> {
        let mut found = Vec::new();
        for &(_, _, slot) in self.first.iter().take(most) {
            if let Some(job) = self.job(slot) {
                found.extend(self.demand_of(job, 1));
            }
        }
        for &at in self.waiting.active() {
            let class = self.waiting.class(at);
            let fresh = class.fresh.first().map(|(_, _, slot)| slot);
            let scored = class.scored.first().map(|(_, _, _, slot)| slot);
            let since = |slot: u32| self.job(slot).map(|job| job.submitted);
            let first = [fresh, scored].into_iter().flatten().min_by_key(|slot| since(*slot));
            if let Some(job) = first.and_then(|slot| self.job(slot)) {
                found.extend(self.demand_of(job, class.len()));
            }
        }
        found.sort_by_key(|demand| (demand.since, demand.ask, demand.nodes, demand.zones));
        found.truncate(most);
        found
    }

    /// Jobs like this one, as many of them as their quota has room for.
    fn demand_of(&self, job: &Job, jobs: usize) -> Option<Demand> {
        let fits = |count: usize| {
            let nodes = u64::from(job.spec.nodes.min) * count as u64;
            let mut kinds = self.types_for(job);
            kinds.any(|kind| self.quota.fits(job.queue, &Self::amounts(job, nodes, kind)))
        };
        // The most that fit; all that are fewer fit as well.
        let (mut low, mut high) = (0, jobs);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        (low > 0).then_some(Demand {
            ask: job.spec.per_node,
            nodes: job.spec.nodes,
            zones: job.spec.zones,
            spot: job.spot,
            topology: job.spec.topology,
            jobs: low,
            since: job.submitted,
        })
    }

    /// How a node stands; nothing if it was never there.
    #[must_use]
    pub fn stands(&self, node: NodeId) -> Option<NodeStanding> {
        let node = self.cluster.node(node)?;
        Some(NodeStanding {
            status: node.status,
            jobs: node.jobs.len() + node.leaving.len(),
            cpu: node.cpu_free,
            memory: node.memory_free,
            gpus: node.whole_free,
        })
    }
}
