//! Nodes kept for a job that could not start: they take nobody else, unless it is sure to be gone
//! before the job could start anyway. So whoever is let pass never delays it.

use std::collections::BTreeMap;

use super::pass::Outcome;
use super::{Job, Scheduler, State};
use crate::cluster::{Filter, Node, Status};
use crate::model::{Level, Millis, NodeId, Topology};
use crate::order::Head;
use crate::waiting::Verdict;

/// Where nothing is known about a job's end, a day and whatever it has run.
const LONG: Millis = 24 * 3600 * 1000;

#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) slot: u32,
    pub(crate) nodes: Vec<NodeId>,
    /// When they will have run empty at the latest, if every job there has a time limit.
    pub(crate) at: Option<Millis>,
}

impl Scheduler {
    /// Classes differ by time limit only where that decides about backfilling, and then roughly.
    pub(super) fn limit_of_class(&self, limit: Option<Millis>) -> Option<Millis> {
        if self.order.head() != Head::Reserves {
            return None;
        }
        limit.map(|limit| limit.max(1).next_power_of_two())
    }

    pub(super) fn drop_reservation(&mut self) {
        if let Some(kept) = self.reservation.take() {
            for node in kept.nodes {
                self.cluster.change(node, |node| node.kept_for = None);
            }
        }
    }

    /// Tries the job that nodes are kept for before anybody else.
    pub(super) fn serve_reserved(&mut self) {
        let Some(kept) = self.reservation.clone() else { return };
        let waits = self
            .job(kept.slot)
            .is_some_and(|job| matches!(job.state, State::Waiting | State::First));
        self.drop_reservation();
        if !waits {
            return;
        }
        // Nodes do not help whom a quota blocks; and where the time has passed without a start,
        // something has changed and they are chosen anew.
        let outcome = self.try_start(kept.slot);
        let in_time = kept.at.is_none_or(|at| at >= self.now);
        if in_time && matches!(outcome, Outcome::Blocked(Verdict::NoRoom { .. })) {
            self.keep(kept);
        }
    }

    fn keep(&mut self, kept: Reservation) {
        for &node in &kept.nodes {
            self.cluster.change(node, |node| node.kept_for = Some(kept.slot));
        }
        self.reservation = Some(kept);
    }

    /// Keeps the nodes that will be empty soonest.
    pub(super) fn reserve(&mut self, slot: u32) -> bool {
        let Some(job) = self.job(slot) else { return false };
        let filter = self.filter(slot, job);
        let needs = usize::from(job.spec.nodes.min);
        let mut soonest: Vec<(Millis, bool, NodeId)> = self
            .cluster
            .nodes()
            .filter(|node| node.status == Status::Up && node.could_fit(&job.spec.per_node))
            .filter(|node| filter.admits_node(node, &job.spec.per_node))
            .map(|node| {
                let (at, known) = self.empties_at(node, job);
                (at, known, node.spec.id)
            })
            .collect();
        soonest.sort_unstable_by_key(|&(at, known, id)| (at, !known, id));
        let chosen = match job.spec.topology {
            Topology::Require(level) if needs > 1 => self.soonest_together(&soonest, needs, level),
            _ => soonest.get(..needs).map(<[_]>::to_vec),
        };
        let Some(chosen) = chosen else { return false };
        let known = chosen.iter().all(|&(_, known, _)| known);
        let at = chosen.iter().map(|&(at, _, _)| at).max().filter(|_| known);
        let nodes = chosen.into_iter().map(|(_, _, id)| id).collect();
        self.drop_reservation();
        self.keep(Reservation { slot, nodes, at });
        true
    }

    fn soonest_together(
        &self,
        soonest: &[(Millis, bool, NodeId)],
        needs: usize,
        level: Level,
    ) -> Option<Vec<(Millis, bool, NodeId)>> {
        let mut domains: BTreeMap<u32, Vec<(Millis, bool, NodeId)>> = BTreeMap::new();
        for &entry in soonest {
            let node = self.cluster.node(entry.2)?;
            let domain = match level {
                Level::Rack => node.spec.rack,
                Level::Block => node.spec.block,
            };
            let nodes = domains.entry(domain).or_default();
            nodes.push(entry);
            // Sorted by time: the first domain to have enough is the soonest.
            if nodes.len() == needs {
                return Some(nodes.clone());
            }
        }
        None
    }

    /// When a share of the job would fit on a node, nobody new coming, and whether that is sure.
    pub(crate) fn empties_at(&self, node: &Node, job: &Job) -> (Millis, bool) {
        let mut there: Vec<(Millis, bool, u32)> = node
            .jobs
            .iter()
            .filter_map(|&slot| {
                let other = self.job(slot)?;
                let (end, known) = self.ends_at(other);
                Some((end, known, slot))
            })
            .collect();
        there.sort_unstable();
        let mut node = node.clone();
        let id = node.spec.id;
        let (mut at, mut sure) = (self.now, true);
        for (end, known, slot) in there {
            if node.fits(&job.spec.per_node) {
                break;
            }
            let Some(other) = self.job(slot) else { continue };
            for placed in other.placement.iter().filter(|placed| placed.node == id) {
                node.give_back(&other.spec.per_node, placed);
            }
            at = at.max(end);
            sure &= known;
        }
        (at, sure && node.fits(&job.spec.per_node))
    }

    /// When a running job ends: at its limit, or as long from now as the policy expects.
    pub(crate) fn ends_at(&self, job: &Job) -> (Millis, bool) {
        if let Some(limit) = job.spec.time_limit {
            return ((job.started + limit.saturating_sub(job.ran)).max(self.now), true);
        }
        let standing = self.standing(job);
        let rest = self.order.expected_rest(&standing).unwrap_or(LONG + standing.ran);
        (self.now + rest, false)
    }

    /// Whether a job that started now would be gone before the reserved one can start.
    pub(super) fn ends_before(&self, job: &Job, kept: &Reservation) -> bool {
        match (job.spec.time_limit, kept.at) {
            (Some(limit), Some(at)) => self.now + limit.saturating_sub(job.ran) <= at,
            _ => false,
        }
    }

    /// What was found, and kept nodes that would do as well.
    pub(super) fn with_kept(
        &self,
        slot: u32,
        job: &Job,
        filter: &Filter,
        found: &[NodeId],
    ) -> Vec<NodeId> {
        let mut all = found.to_vec();
        let Some(kept) = self.reservation.as_ref().filter(|kept| kept.slot != slot) else {
            return all;
        };
        // Staying together is not tried with kept nodes.
        if matches!(job.spec.topology, Topology::Require(_)) && job.spec.nodes.min > 1 {
            return all;
        }
        let first = found.first().map(|&id| self.cluster.gpu_type_of(id));
        for &id in &kept.nodes {
            let Some(node) = self.cluster.node(id) else { continue };
            let same = first.is_none_or(|kind| kind == node.spec.gpu_type);
            if all.len() < usize::from(job.spec.nodes.min)
                && same
                && filter.admits_node(node, &job.spec.per_node)
                && node.status == Status::Up
                && node.fits(&job.spec.per_node)
            {
                all.push(id);
            }
        }
        all
    }
}
