//! A pass: who starts now.
//!
//! First those who outrank the order, then classes by their best job: higher priority, within its
//! quota before borrowing, of those who borrow the one whose queue has and has had less, better score,
//! earlier. A class whose first job cannot start is done for
//! this pass, and the reason is noted for all of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Job, Scheduler, State};
use crate::decision::Decision;
use crate::model::{Dimension, GPU_PARTS, JobId, Millis, NodeId};
use crate::order::Head;
use crate::quota::{Fair, MAX_DEPTH};
use crate::waiting::{Lane, Score, Verdict};

/// Jobs that a policy learns from at a round; of more, a sample is enough.
const SAMPLE: usize = 20_000;

/// How the best job of a class compares with those of others.
type Rank = (Reverse<i16>, bool, Fair, Score, u64);

pub(super) enum Outcome {
    Started,
    Blocked(Verdict),
}

impl Scheduler {
    /// Decides what to do now. Everything decided has already changed hands here.
    pub fn decide(&mut self, at: Millis) -> Vec<Decision> {
        self.let_pass(at);
        self.victims = None;
        self.looks = 0;
        self.mend_quotas();
        self.leave_spot();
        self.raise_starving();
        self.begin_round();
        if self.in_round && self.order.replans() {
            self.replan();
        }
        self.serve_reserved();
        self.serve_first();
        self.serve_classes();
        self.grow_elastic();
        self.in_round = false;
        self.passed = self.now;
        std::mem::take(&mut self.out)
    }

    fn begin_round(&mut self) {
        self.in_round = self.now >= self.next_round;
        if !self.in_round {
            return;
        }
        // Rounds keep to a grid, so that a late one does not shift those after it.
        self.next_round = (self.now / self.settings.round + 1) * self.settings.round;
        let mut order = std::mem::replace(&mut self.order, Box::new(crate::order::Fifo::strict()));
        let shares = order.compares_shares();
        let stride = 1 + self.jobs.len() / SAMPLE;
        let live = self.jobs.iter().step_by(stride).flatten();
        let changed = order.learn(&mut live.map(|job| self.standing(job)), stride as f64);
        self.order = order;
        if changed || shares || self.order.drifts() {
            self.score_anew();
        }
    }

    /// Gives waiting jobs that have scores of their own the ones they have by now.
    fn score_anew(&mut self) {
        let mut moves = Vec::new();
        for &at in self.waiting.active() {
            for (_, old, _, slot) in self.waiting.class(at).scored.iter() {
                let Some(job) = self.job(slot) else { continue };
                let new = Score::of(self.score(job));
                if new != old {
                    moves.push((slot, new));
                }
            }
        }
        for (slot, new) in moves {
            let Some(job) = self.job_mut(slot) else { continue };
            let (class, priority, sequence) = (job.class, job.spec.priority, job.sequence);
            let old = std::mem::replace(&mut job.lane, Lane::Scored(new));
            // In first, so that a class never loses its last job on the way.
            self.waiting.insert(class, priority, Lane::Scored(new), sequence, slot);
            self.waiting.remove(class, priority, old, sequence, slot);
        }
    }

    /// The best job of a class, and how it ranks.
    fn head_of(&self, class: u32) -> Option<(Rank, u32)> {
        let class = self.waiting.class(class);
        let fresh = class.fresh.first().and_then(|(priority, sequence, slot)| {
            let score = Score::of(self.score(self.job(slot)?));
            Some((priority, score, sequence, slot))
        });
        let (priority, score, sequence, slot) = match (fresh, class.scored.first()) {
            (Some(fresh), Some(scored)) => fresh.min(scored),
            (one, other) => one.or(other)?,
        };
        let job = self.job(slot)?;
        let (borrows, fair) = self.fairness(job);
        Some(((priority, borrows, fair, score, sequence), slot))
    }

    /// Whether a job would live on what others own, and how those on the way to its queue stand among
    /// others who do. All jobs of a class have the same.
    pub(crate) fn fairness(&self, job: &Job) -> (bool, Fair) {
        let kind = self.types_for(job).next().unwrap_or_default();
        let amounts = Self::amounts(job, job.spec.nodes.min.into(), kind);
        if self.quota.would_borrow(job.queue, &amounts) {
            (true, self.quota.fair(job.queue, self.cluster.capacity()))
        } else {
            (false, [Score::of(0.0); MAX_DEPTH])
        }
    }

    /// Those who outrank the order, the longest waiting first.
    fn serve_first(&mut self) {
        let line: Vec<u32> = self
            .first
            .iter()
            .take(self.settings.first_per_pass)
            .map(|&(_, _, slot)| slot)
            .collect();
        let mut kept = self.reservation.is_some();
        for slot in line {
            // Was tried before everybody else.
            if self.reservation.as_ref().is_some_and(|kept| kept.slot == slot) {
                continue;
            }
            if let Outcome::Blocked(verdict) = self.try_start(slot) {
                self.first_verdict = verdict;
                // Nodes run empty for the first of them, or a large gang would never get any.
                if !kept && matches!(verdict, Verdict::NoRoom { .. }) {
                    kept = self.reserve(slot);
                }
            }
        }
    }

    fn serve_classes(&mut self) {
        let mut line: BinaryHeap<Reverse<(Rank, u32)>> = BinaryHeap::new();
        for &class in self.waiting.active() {
            if let Some((rank, _)) = self.head_of(class) {
                line.push(Reverse((rank, class)));
            }
        }
        let mut stuck: Option<JobId> = None;
        while let Some(Reverse((rank, class))) = line.pop() {
            if let Some(head) = stuck {
                self.note(class, Verdict::Behind(head));
                continue;
            }
            let Some((now, slot)) = self.head_of(class) else { continue };
            if now > rank {
                // Others have started meanwhile: its queue borrows by now, or has a larger share.
                line.push(Reverse((now, class)));
                continue;
            }
            let last = self.waiting.class(class).len() == 1;
            match self.try_start(slot) {
                Outcome::Started => {
                    if !last && let Some((rank, _)) = self.head_of(class) {
                        line.push(Reverse((rank, class)));
                    }
                }
                Outcome::Blocked(verdict) => {
                    self.note(class, verdict);
                    if !matches!(verdict, Verdict::NoRoom { .. }) {
                        continue;
                    }
                    match self.order.head() {
                        Head::Blocks => stuck = self.job(slot).map(|job| job.spec.id),
                        Head::Reserves if self.reservation.is_none() => {
                            self.reserve(slot);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn note(&mut self, class: u32, verdict: Verdict) {
        let now = self.now;
        let class = self.waiting.class_mut(class);
        class.verdict = verdict;
        class.considered = now;
    }

    /// Starts a job if there is room, or if room may be made.
    pub(super) fn try_start(&mut self, slot: u32) -> Outcome {
        let spare = self.leaves_headroom(slot);
        let verdict = match self.room_for(slot) {
            Ok(_) if !spare => Verdict::Headroom,
            Ok(nodes) => {
                if self.start(slot, &nodes) {
                    return Outcome::Started;
                }
                Verdict::Unseen
            }
            Err(verdict) => verdict,
        };
        let rounds = self.in_round && self.order.preempts() && !self.order.replans();
        if rounds && spare && matches!(verdict, Verdict::NoRoom { .. }) && self.consolidate(slot) {
            return Outcome::Started;
        }
        if self.make_room(slot)
            && let Ok(nodes) = self.room_for(slot)
            && self.start(slot, &nodes)
        {
            return Outcome::Started;
        }
        Outcome::Blocked(verdict)
    }

    /// Whether enough stays free for short jobs to come, if the policy keeps some.
    fn leaves_headroom(&self, slot: u32) -> bool {
        let Some(job) = self.job(slot) else { return true };
        if job.state == State::First {
            return true;
        }
        let parts = self.cluster.capacity().get(Dimension::Gpu) as f64;
        let keeps = self.order.headroom(&self.standing(job)) * parts;
        if keeps == 0.0 {
            return true;
        }
        let held = self.quota.all_held().get(Dimension::Gpu) as f64;
        let asks = (job.spec.per_node.gpu.parts() * u64::from(job.spec.nodes.min)) as f64;
        // Of few GPUs one is far more than the part that is meant, and who asks for nearly everything could
        // never leave it.
        keeps < GPU_PARTS as f64 / 2.0 || asks + keeps > parts || held + asks + keeps <= parts
    }

    /// Nodes on which a job could start now, or what is in the way.
    pub(crate) fn room_for(&self, slot: u32) -> Result<Vec<NodeId>, Verdict> {
        let Some(job) = self.job(slot) else { return Err(Verdict::Unseen) };
        let filter = self.filter(slot, job);
        let needs = job.spec.nodes.min;
        if filter.types == 0 {
            return Err(Verdict::Quota(self.short_of_quota(job)));
        }
        let mut found = self.cluster.find(&job.spec.per_node, needs, job.spec.topology, &filter);
        if found.len() >= usize::from(needs) {
            return Ok(found);
        }
        if let Some(kept) = &self.reservation {
            let all = self.with_kept(slot, job, &filter, &found);
            if all.len() >= usize::from(needs) {
                if self.ends_before(job, kept) {
                    return Ok(all);
                }
                let whose = self.job(kept.slot).map_or(JobId(0), |other| other.spec.id);
                return Err(Verdict::Kept(whose));
            }
        }
        let there = found.len() as u16;
        found.clear();
        Err(Verdict::NoRoom { found: there, needs })
    }

    fn short_of_quota(&self, job: &Job) -> Dimension {
        let blocked = self.types_for(job).find_map(|kind| {
            let amounts = Self::amounts(job, job.spec.nodes.min.into(), kind);
            self.quota.blocked_at(job.queue, &amounts)
        });
        blocked.map_or(Dimension::Gpu, |(_, dimension)| dimension)
    }
}
