//! Rounds as they are usually described: everybody is ranked anew, the cluster is thought empty, and
//! jobs are placed in that order. Running jobs keep their nodes unless somebody better was put there.
//!
//! Kept for the policies of others, as they were published and compared. It shuffles more than need
//! be: see [`super::preempt`] for what the default does instead.

use super::{Scheduler, State};
use crate::decision::StopReason;
use crate::model::{Ask, NodeId};
use crate::waiting::Score;

impl Scheduler {
    pub(super) fn replan(&mut self) {
        let mut line: Vec<(std::cmp::Reverse<i16>, Score, u64, u32)> = Vec::new();
        let mut staying = Vec::new();
        for (slot, job) in self.jobs.iter().enumerate() {
            let Some(job) = job else { continue };
            if job.state == State::Leaving {
                continue;
            }
            let standing = self.standing(job);
            let ran = self.now.saturating_sub(job.started);
            let least = job.spec.minimum_run.max(self.order.minimum_run(&standing));
            if job.is_running() && (ran < least || ran == 0) {
                staying.push(slot as u32);
                continue;
            }
            let score = Score::of(self.order.score(&standing));
            let first = job.state == State::First;
            let score = if first { Score::of(f64::MIN) } else { score };
            let priority = std::cmp::Reverse(job.spec.priority);
            line.push((priority, score, job.sequence, slot as u32));
        }
        line.sort_unstable();
        let all: Vec<u32> = self.running.clone();
        for &slot in &all {
            self.lift(slot);
        }
        for &slot in &staying {
            self.put_back(slot);
        }
        let (mut starts, mut stops) = (Vec::new(), Vec::new());
        for (_, _, _, slot) in line {
            if self.job(slot).is_some_and(super::Job::is_running) {
                if self.has_its_place(slot) {
                    self.put_back(slot);
                } else {
                    stops.push(slot);
                }
            } else if let Some((nodes, ask)) = self.plan(slot) {
                starts.push((slot, nodes, ask));
            }
        }
        // So far a thought. Undone, and done in the order in which it must happen.
        for (slot, _, plan) in &starts {
            self.unplan(*slot, plan);
        }
        for slot in stops {
            self.stop_lifted(slot, StopReason::Order, None);
        }
        for (slot, nodes, _) in starts {
            self.start(slot, &nodes);
        }
    }

    /// Whether nobody better was put where a running job is.
    fn has_its_place(&self, slot: u32) -> bool {
        let Some(job) = self.job(slot) else { return false };
        let ask = &job.spec.per_node;
        let amounts = Self::amounts(job, job.placement.len() as u64, job.gpu_type);
        self.quota.fits(job.queue, &amounts)
            && job.placement.iter().all(|placed| {
                self.cluster.node(placed.node).is_some_and(|node| node.could_retake(ask, placed))
            })
    }

    fn plan(&mut self, slot: u32) -> Option<(Vec<NodeId>, Plan)> {
        let nodes = self.room_for(slot).ok()?;
        let job = self.job(slot)?;
        let (ask, queue) = (job.spec.per_node, job.queue);
        let kind = self.cluster.gpu_type_of(*nodes.first()?);
        let amounts = ask.amounts(kind).times(nodes.len() as u64);
        let placement = self.cluster.take(slot, &ask, &nodes)?;
        self.quota.charge(queue, &amounts);
        Some((nodes, Plan { ask, queue, amounts, placement }))
    }

    fn unplan(&mut self, slot: u32, plan: &Plan) {
        self.cluster.give_back(slot, &plan.ask, &plan.placement);
        self.quota.release(plan.queue, &plan.amounts);
    }
}

struct Plan {
    ask: Ask,
    queue: crate::quota::Place,
    amounts: crate::model::Amounts,
    placement: Vec<crate::decision::Placed>,
}
