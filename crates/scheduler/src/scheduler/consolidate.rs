//! Making room without stopping anybody for good: small jobs move together so that a node becomes
//! free for a large one. Each goes on elsewhere at once, for the price of a restart.
//!
//! Only at rounds, only jobs that have stayed where they are for a while, and never more than half
//! the GPUs that are gained.

use super::{Job, Scheduler};
use crate::cluster::{Filter, Node, Status};
use crate::decision::{Decision, Placed};
use crate::model::{GpuAsk, JobId, NodeId, Topology};

impl Scheduler {
    /// Frees nodes for a waiting job by moving others, if all of them find a place.
    pub(super) fn consolidate(&mut self, slot: u32) -> bool {
        if self.looks >= self.settings.looks_per_pass {
            return false;
        }
        let Some(job) = self.job(slot) else { return false };
        let GpuAsk::Whole(gpus) = job.spec.per_node.gpu else { return false };
        let filter = self.filter(slot, job);
        let needs = usize::from(job.spec.nodes.min);
        let together = needs > 1 && matches!(job.spec.topology, Topology::Require(_));
        if gpus < 2 || filter.types == 0 || together {
            return false;
        }
        let id = job.spec.id;
        let mut nodes: Vec<(u32, NodeId, Vec<u32>)> = Vec::new();
        let (mut free, mut looks) = (0, 0);
        for node in self.cluster.nodes() {
            if node.status == Status::Up && node.kept_for.is_none() {
                free += u32::from(node.whole_free);
                looks += 1 + node.jobs.len();
                if filter.admits_node(node, &job.spec.per_node)
                    && let Some((cost, moving)) = self.clear(node, job)
                {
                    nodes.push((cost, node.spec.id, moving));
                }
            }
        }
        self.looks += looks;
        nodes.sort_unstable_by_key(|(cost, id, _)| (*cost, *id));
        if nodes.len() < needs || free < u32::from(gpus) * needs as u32 {
            return false;
        }
        nodes.truncate(needs);
        let kind = self.cluster.gpu_type_of(nodes[0].1);
        if nodes.iter().any(|(_, id, _)| self.cluster.gpu_type_of(*id) != kind) {
            return false;
        }
        let cost: u32 = nodes.iter().map(|(cost, _, _)| cost).sum();
        if 2 * cost > u32::from(gpus) * needs as u32 {
            return false;
        }
        let moving: Vec<u32> = nodes.iter().flat_map(|(_, _, moving)| moving).copied().collect();
        let cleared: Vec<NodeId> = nodes.iter().map(|(_, id, _)| *id).collect();
        self.move_away(&moving, &cleared, slot, id)
    }

    /// Who would have to leave a node for a share of the job to fit, and how many GPUs they have.
    fn clear(&self, node: &Node, job: &Job) -> Option<(u32, Vec<u32>)> {
        let ask = &job.spec.per_node;
        let mut movable: Vec<(u8, u32)> = Vec::new();
        for &slot in &node.jobs {
            let other = self.job(slot)?;
            let GpuAsk::Whole(gpus) = other.spec.per_node.gpu else { continue };
            let ran = self.now.saturating_sub(other.started);
            let least = other.spec.minimum_run.max(self.settings.move_after);
            let alone = other.placement.len() == 1 && other.spec.nodes.max == 1;
            if alone && ran >= least && ran > 0 && gpus < node.spec.gpus {
                movable.push((gpus, slot));
            }
        }
        movable.sort_unstable();
        let (mut free, mut cpu, mut memory) = (node.whole_free, node.cpu_free, node.memory_free);
        let GpuAsk::Whole(wanted) = ask.gpu else { return None };
        let (mut cost, mut moving) = (0, Vec::new());
        for (gpus, slot) in movable {
            if free >= wanted && cpu >= ask.cpu && memory >= ask.memory {
                break;
            }
            let other = self.job(slot)?;
            free += gpus;
            cpu += other.spec.per_node.cpu;
            memory += other.spec.per_node.memory;
            cost += u32::from(gpus);
            moving.push(slot);
        }
        (free >= wanted && cpu >= ask.cpu && memory >= ask.memory).then_some((cost, moving))
    }

    /// Moves jobs off nodes and starts another there; all of it or nothing.
    fn move_away(&mut self, moving: &[u32], cleared: &[NodeId], slot: u32, for_job: JobId) -> bool {
        let Some(ask) = self.job(slot).map(|job| job.spec.per_node) else { return false };
        for &other in moving {
            self.lift(other);
        }
        // Holds the nodes while the others look for places.
        let held = self.cluster.take(slot, &ask, cleared);
        let mut places: Vec<(u32, Vec<Placed>)> = Vec::new();
        // The largest first: they find a place hardest.
        for &other in moving.iter().rev() {
            if held.is_none() {
                break;
            }
            let Some(job) = self.job(other) else { break };
            let theirs = job.spec.per_node;
            let filter = Filter {
                zones: job.spec.zones,
                spot: job.spot,
                types: 1 << job.gpu_type.0,
                slot: other,
            };
            let nodes = self.cluster.find(&theirs, 1, Topology::Anywhere, &filter);
            let Some(placed) = self.cluster.take(other, &theirs, &nodes) else { break };
            if placed.is_empty() {
                break;
            }
            places.push((other, placed));
        }
        let all = held.is_some() && places.len() == moving.len();
        if !all {
            for (other, placed) in &places {
                let Some(theirs) = self.job(*other).map(|job| job.spec.per_node) else { continue };
                self.cluster.give_back(*other, &theirs, placed);
            }
        }
        if let Some(held) = &held {
            self.cluster.give_back(slot, &ask, held);
        }
        if !all {
            for &other in moving.iter().rev() {
                self.put_back(other);
            }
            return false;
        }
        for (other, placed) in places {
            self.moved(other, placed, for_job);
        }
        self.start(slot, cleared)
    }

    /// Books a move: the job was lifted and has its new nodes.
    fn moved(&mut self, slot: u32, placement: Vec<Placed>, for_job: JobId) {
        let now = self.now;
        let nodes: Vec<NodeId> = placement.iter().map(|placed| placed.node).collect();
        let after = self.still_leaving(&nodes);
        let Some(job) = self.jobs.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let amounts = Self::amounts(job, placement.len() as u64, job.gpu_type);
        self.quota.charge(job.queue, &amounts);
        let lost_gpu_ms = job.at_stake(now);
        job.service = job.service_by(now);
        job.ran = job.ran_by(now);
        (job.started, job.counted, job.saved) = (now, now, now);
        job.preemptions += 1;
        let old = std::mem::replace(&mut job.placement, placement.clone());
        let id = job.spec.id;
        job.leaving.extend(old.iter().map(|placed| placed.node));
        for placed in old {
            self.cluster.note_leaving(placed.node, id);
        }
        self.out.push(Decision::Move { job: id, placement, after, for_job, lost_gpu_ms });
    }
}
