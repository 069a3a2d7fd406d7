//! Which rule blocks a job, who holds what it needs, and what would have to change.

use super::{Change, QueueHolder, Rule};
use crate::cluster::{Filter, Node, Status};
use crate::model::{Amounts, Ask, GpuAsk, JobId, Millis, NodeId, Spot, Topology, ZoneSet};
use crate::scheduler::{Job, Scheduler, State};
use crate::waiting::Verdict;

/// Who is named at most.
const NAMED: usize = 5;
/// Nodes that are looked at closely for the one that empties soonest. The fullest are not.
const LOOKED_AT: usize = 64;

impl Scheduler {
    pub(super) fn blocking_rule(&self, slot: u32, job: &Job) -> Rule {
        let usable = |node: &&Node| {
            let filter = Self::any_type(slot, job);
            filter.admits_node(node, &job.spec.per_node) && node.could_fit(&job.spec.per_node)
        };
        match self.room_for(slot) {
            Ok(_) => match self.verdict(job.state == State::First, job.class) {
                Verdict::Behind(head) if head != job.spec.id => Rule::Behind { job: head },
                Verdict::Headroom => Rule::Headroom,
                _ => Rule::InLine,
            },
            Err(Verdict::Quota(_)) => self.quota_rule(job),
            Err(Verdict::Kept(other)) => {
                let at = self.reservation.as_ref().and_then(|kept| kept.at);
                Rule::KeptFor { job: other, at }
            }
            Err(_) => {
                let up = |node: &&Node| node.status == Status::Up && usable(node);
                if !self.cluster.nodes().any(|node| up(&node)) {
                    return Rule::NoNode;
                }
                if let Verdict::Behind(head) = self.verdict(job.state == State::First, job.class)
                    && head != job.spec.id
                {
                    return Rule::Behind { job: head };
                }
                let filter = self.filter(slot, job);
                let needs = job.spec.nodes.min;
                let found =
                    self.cluster.find(&job.spec.per_node, needs, job.spec.topology, &filter);
                let holders = self.soonest(slot, job).map(|(_, jobs)| jobs).unwrap_or_default();
                Rule::NoRoom { nodes: found.len() as u16, needs, holders }
            }
        }
    }

    fn any_type(slot: u32, job: &Job) -> Filter {
        Filter { zones: job.spec.zones, spot: job.spot, types: u8::MAX, slot }
    }

    fn wanted(&self, job: &Job) -> Amounts {
        let kind = self.types_for(job).next().unwrap_or_default();
        Self::amounts(job, job.spec.nodes.min.into(), kind)
    }

    fn quota_rule(&self, job: &Job) -> Rule {
        let wanted = self.wanted(job);
        let Some((at, dimension)) = self.quota.blocked_at(job.queue, &wanted) else {
            return Rule::InLine;
        };
        let mut holders: Vec<QueueHolder> = self
            .quota
            .leaves_below(at)
            .filter_map(|(place, queue)| {
                let holds = self.quota.held(place).get(dimension);
                let owned = self.quota.owned(place).get(dimension);
                let borrows = holds.saturating_sub(owned);
                (holds > 0).then_some(QueueHolder { queue, holds, borrows })
            })
            .collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.holds), holder.queue));
        holders.truncate(NAMED);
        Rule::Quota {
            queue: self.quota.id(at),
            dimension,
            needs: wanted.get(dimension),
            room: self.quota.room(job.queue).get(dimension),
            holders,
        }
    }

    /// What would let a job start, everything else being as it is.
    pub(super) fn changes(&self, slot: u32, job: &Job, rule: &Rule) -> Vec<Change> {
        let mut changes = Vec::new();
        match rule {
            Rule::Quota { queue, dimension, needs, room, .. } => {
                let by = needs.saturating_sub(*room);
                if let Some(queue) = *queue {
                    changes.push(Change::MoreQuota { queue, dimension: *dimension, by });
                }
                self.smaller(slot, job, &mut changes);
            }
            Rule::NoRoom { .. } | Rule::NoNode | Rule::KeptFor { .. } => {
                self.smaller(slot, job, &mut changes);
                self.elsewhere(slot, job, &mut changes);
                if let Some(((by, known, node), jobs)) = self.soonest(slot, job) {
                    changes.push(Change::JobsEnd { jobs, node, by, known });
                }
            }
            _ => {}
        }
        changes
    }

    /// Whether so many shares of this would start now.
    fn would_start(&self, job: &Job, ask: &Ask, nodes: u16, filter: &Filter) -> bool {
        let kind = self.types_for(job).next().unwrap_or_default();
        if !self.quota.fits(job.queue, &ask.amounts(kind).times(nodes.into())) {
            return false;
        }
        let found = self.cluster.find(ask, nodes, job.spec.topology, filter).len();
        // Nodes kept for the job itself are on no list.
        let kept = self.reservation.iter().filter(|kept| kept.slot == filter.slot);
        let kept = kept.flat_map(|kept| &kept.nodes).filter_map(|&id| self.cluster.node(id));
        let own = kept.filter(|node| filter.admits_node(node, ask) && node.fits(ask)).count();
        found + own >= nodes.into()
    }

    fn smaller(&self, slot: u32, job: &Job, changes: &mut Vec<Change>) {
        let filter = Self::any_type(slot, job);
        let ask = job.spec.per_node;
        let needs = job.spec.nodes.min;
        if let GpuAsk::Whole(gpus) = ask.gpu {
            let fewer = (1..gpus).rev().find(|&fewer| {
                let smaller = Ask { gpu: GpuAsk::Whole(fewer), ..ask };
                self.would_start(job, &smaller, needs, &filter)
            });
            if let Some(per_node) = fewer {
                changes.push(Change::FewerGpus { per_node });
            }
        }
        // Halving finds the most nodes that would do in a few looks, since fewer always fit better.
        let (mut fits, mut fails) = (0, needs);
        while fits + 1 < fails {
            let middle = fits.midpoint(fails);
            if self.would_start(job, &ask, middle, &filter) {
                fits = middle;
            } else {
                fails = middle;
            }
        }
        if fits > 0 {
            changes.push(Change::FewerNodes { nodes: fits });
        }
    }

    fn elsewhere(&self, slot: u32, job: &Job, changes: &mut Vec<Change>) {
        let filter = Self::any_type(slot, job);
        let (ask, needs) = (job.spec.per_node, job.spec.nodes.min);
        if job.spot == Spot::Never {
            let spot = Filter { spot: Spot::Allowed, ..filter };
            if self.would_start(job, &ask, needs, &spot) {
                changes.push(Change::AllowSpot);
            }
        }
        if job.spec.zones != ZoneSet::ANY {
            let anywhere = Filter { zones: ZoneSet::ANY, ..filter };
            if self.would_start(job, &ask, needs, &anywhere) {
                changes.push(Change::MoreZones);
            }
        }
        if ask.gpu_type.is_some() {
            let any = Ask { gpu_type: None, ..ask };
            if self.would_start(job, &any, needs, &filter) {
                changes.push(Change::AnyGpuType);
            }
        }
    }

    /// The node (the last of several) that empties soonest, when, and whose end that takes.
    #[allow(clippy::type_complexity, reason = "read in two places, both next door")]
    fn soonest(&self, slot: u32, job: &Job) -> Option<((Millis, bool, NodeId), Vec<JobId>)> {
        let filter = Self::any_type(slot, job);
        let ask = &job.spec.per_node;
        let admitted = |node: &&Node| {
            node.status == Status::Up && node.could_fit(ask) && filter.admits_node(node, ask)
        };
        let mut nodes: Vec<&Node> = self.cluster.nodes().filter(admitted).collect();
        let roomy = |node: &&Node| (std::cmp::Reverse(node.whole_free), node.spec.id);
        let looked = LOOKED_AT.max(usize::from(job.spec.nodes.min)).min(nodes.len());
        if looked < nodes.len() {
            nodes.select_nth_unstable_by_key(looked, roomy);
            nodes.truncate(looked);
        }
        let mut ends: Vec<(Millis, bool, NodeId)> = nodes
            .iter()
            .map(|node| {
                let (at, known) = self.empties_at(node, job);
                (at, known, node.spec.id)
            })
            .collect();
        ends.sort_unstable_by_key(|&(at, known, id)| (at, !known, id));
        let last = *ends.get(usize::from(job.spec.nodes.min).checked_sub(1)?)?;
        let needed = &ends[..usize::from(job.spec.nodes.min)];
        let known = needed.iter().all(|end| end.1);
        let mut jobs = Vec::new();
        for &(by, _, id) in needed {
            let Some(node) = self.cluster.node(id) else { continue };
            for &other in &node.jobs {
                let Some(other) = self.job(other) else { continue };
                let ends = self.ends_at(other).0;
                if !node.fits(ask) && ends <= by && !jobs.contains(&other.spec.id) {
                    jobs.push(other.spec.id);
                }
            }
        }
        jobs.truncate(NAMED);
        let together = matches!(job.spec.topology, Topology::Require(_)) && job.spec.nodes.min > 1;
        Some(((last.0, known && !together, last.2), jobs))
    }
}
