//! Making room for a job by taking from others.
//!
//! Who may be made to give: shares of elastic jobs above their minimum; then, at any time, jobs of
//! queues that borrow what the waiting job's queue owns, and jobs of lower priority in its own
//! queue, the cheapest first (work since the last whole checkpoint); then, at rounds, jobs that the
//! policy's order puts far enough behind it, the last first.
//!
//! Must hold:
//! - Nobody is stopped before its minimum run, nor in the pass that started it.
//! - Who is stopped could not turn round and stop the other: what is done once stays done.
//! - A borrower never displaces work within its own quota.
//! - Nothing is stopped that need not be, and nothing at all if it does not make enough room.

use super::{Job, Scheduler, State};
use crate::cluster::{Filter, Status};
use crate::decision::{Placed, StopReason};
use crate::model::{Amounts, GpuAsk, GpuType, NodeId, Topology};

/// Running jobs in the orders in which they are looked through.
#[derive(Clone, Debug)]
pub(super) struct Victims {
    /// By priority, then by what stopping would lose.
    by_cost: Vec<u32>,
    /// By score, the worst first.
    by_score: Vec<(f64, u32)>,
}

/// What could be free on nodes if those looked at so far were gone. Entries of earlier searches are
/// told apart by their number, so that nothing is cleared.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    search: u32,
    nodes: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    search: u32,
    usable: bool,
    fits: bool,
    cpu: u32,
    memory: u32,
    whole: u8,
}

/// Something that somebody would have to give.
#[derive(Clone, Copy, Debug)]
enum Give {
    Share(u32, Placed),
    All(u32, StopReason),
}

/// For whom room is made, and on what grounds.
struct Claim {
    slot: u32,
    id: crate::model::JobId,
    amounts: Amounts,
    score: (f64, u64),
    first: bool,
    borrows: bool,
    /// Whether only quota is missing, not nodes.
    quota_only: bool,
    filter: Filter,
}

impl Scheduler {
    /// Makes room for a waiting job if it has the right to it. True if there is room now.
    pub(super) fn make_room(&mut self, slot: u32) -> bool {
        if self.running.is_empty() || self.looks >= self.settings.looks_per_pass {
            return false;
        }
        let Some(claim) = self.claim(slot) else { return false };
        let surplus = self.surplus();
        let may_reclaim = self.quota.governs();
        let outranks_some = self
            .priorities
            .first_key_value()
            .is_some_and(|(&lowest, _)| self.job(slot).is_some_and(|j| lowest < j.spec.priority));
        if (may_reclaim || outranks_some || !surplus.is_empty())
            && self.search(&claim, &surplus, false)
        {
            return true;
        }
        self.in_round
            && self.order.preempts()
            && !self.order.replans()
            && self.search(&claim, &surplus, true)
    }

    fn claim(&self, slot: u32) -> Option<Claim> {
        let job = self.job(slot)?;
        let standing = self.standing(job);
        let filter = self.filter(slot, job);
        let kind = self.types_for(job).next()?;
        let amounts = Self::amounts(job, job.spec.nodes.min.into(), kind);
        let all = Filter { types: u8::MAX, ..filter };
        let needs = job.spec.nodes.min;
        let found = self.cluster.find(&job.spec.per_node, needs, job.spec.topology, &all);
        Some(Claim {
            slot,
            id: job.spec.id,
            borrows: self.quota.would_borrow(job.queue, &amounts),
            amounts,
            score: (self.order.score(&standing), standing.sequence),
            first: job.state == State::First,
            quota_only: found.len() >= needs.into(),
            filter: all,
        })
    }

    /// Looks for what has to be given, and takes it.
    fn search(&mut self, claim: &Claim, surplus: &[(u32, Placed)], by_order: bool) -> bool {
        self.prepare_victims(by_order);
        let Some(mut victims) = self.victims.take() else { return false };
        let chosen = self.choose(claim, surplus, &mut victims, by_order);
        self.victims = Some(victims);
        let Some(chosen) = chosen else { return false };
        self.exchange(claim, chosen)
    }

    fn prepare_victims(&mut self, by_order: bool) {
        let mut victims =
            self.victims.take().unwrap_or(Victims { by_cost: Vec::new(), by_score: Vec::new() });
        let most = self.settings.victims_per_search;
        if by_order && victims.by_score.is_empty() {
            // Of very many a part is looked at, another one each round.
            let stride = 1 + self.running.len() / 40_000;
            let from = (self.now / self.settings.round) as usize % stride;
            let some = self.running.iter().skip(from).step_by(stride);
            let scores = some.filter_map(|&slot| {
                let job = self.job(slot)?;
                let standing = self.standing(job);
                let rested =
                    self.now.saturating_sub(job.started) >= self.order.minimum_run(&standing);
                rested.then(|| (self.order.score(&standing), slot))
            });
            let mut scores: Vec<(f64, u32)> = scores.collect();
            let worst_first = |a: &(f64, u32), b: &(f64, u32)| {
                let sequence = |slot| self.job(slot).map(|job| job.sequence);
                b.0.total_cmp(&a.0).then_with(|| sequence(b.1).cmp(&sequence(a.1)))
            };
            if scores.len() > most {
                scores.select_nth_unstable_by(most, worst_first);
                scores.truncate(most);
            }
            scores.sort_unstable_by(worst_first);
            victims.by_score = scores;
        }
        if !by_order && victims.by_cost.is_empty() {
            let mut costs: Vec<(i16, u64, u64, u32)> = self
                .running
                .iter()
                .filter_map(|&slot| {
                    let job = self.job(slot)?;
                    let stake = job.at_stake(self.now);
                    // Of those who lose alike, the one that came last.
                    Some((job.spec.priority, stake, u64::MAX - job.sequence, slot))
                })
                .collect();
            if costs.len() > most {
                costs.select_nth_unstable(most);
                costs.truncate(most);
            }
            costs.sort_unstable();
            victims.by_cost = costs.into_iter().map(|(_, _, _, slot)| slot).collect();
        }
        self.victims = Some(victims);
    }

    /// Goes through those who might have to give until there would be enough.
    fn choose(
        &mut self,
        claim: &Claim,
        surplus: &[(u32, Placed)],
        victims: &mut Victims,
        by_order: bool,
    ) -> Option<Vec<Give>> {
        let job = self.job(claim.slot)?;
        let (ask, queue, needs) = (job.spec.per_node, job.queue, job.spec.nodes.min);
        let priority = job.spec.priority;
        let mut count = Count::begin(self, claim, needs);
        let mut lifted: Vec<(u32, Amounts)> = Vec::new();
        let mut chosen: Vec<Give> = Vec::new();
        let mut enough = false;
        for &(slot, placed) in surplus {
            let Some(other) = self.job(slot) else { continue };
            if other.spec.priority > priority || slot == claim.slot {
                continue;
            }
            let (from, amounts) = (other.queue, Self::amounts(other, 1, other.gpu_type));
            let their = other.spec.per_node;
            let touched = count.free(self, claim, &ask, &their, std::slice::from_ref(&placed));
            if !claim.quota_only && !touched && !self.quota_short(claim) {
                continue;
            }
            self.quota.release(from, &amounts);
            lifted.push((from, amounts));
            chosen.push(Give::Share(slot, placed));
            if count.enough(self, &ask, claim) && self.quota.fits(queue, &claim.amounts) {
                enough = true;
                break;
            }
        }
        let line: usize = if by_order { victims.by_score.len() } else { victims.by_cost.len() };
        let mut looked = 0;
        for at in 0..line {
            if enough {
                break;
            }
            let (slot, score) = if by_order {
                (victims.by_score[at].1, victims.by_score[at].0)
            } else {
                (victims.by_cost[at], 0.0)
            };
            let Some(other) = self.job(slot).filter(|other| other.is_running()) else { continue };
            if by_order
                && !claim.first
                && !self.order.displaces(claim.score, (score, other.sequence))
            {
                // Sorted by score: nobody further on can be displaced either.
                break;
            }
            looked += 1;
            let Some(reason) = self.may_stop(claim, priority, other, by_order) else { continue };
            let (from, their) = (other.queue, other.spec.per_node);
            // Of an elastic job shares may have been chosen before; now it is all of it.
            let shared = |placed: &Placed| {
                let same =
                    |give: &Give| matches!(give, Give::Share(s, p) if *s == slot && p == placed);
                chosen.iter().any(same)
            };
            let placement: Vec<Placed> =
                other.placement.iter().filter(|placed| !shared(placed)).copied().collect();
            let amounts = Self::amounts(other, placement.len() as u64, other.gpu_type);
            let touched = count.free(self, claim, &ask, &their, &placement);
            if !touched && !self.quota_short(claim) {
                continue;
            }
            self.quota.release(from, &amounts);
            lifted.push((from, amounts));
            chosen.retain(|give| !matches!(give, Give::Share(other, _) if *other == slot));
            chosen.push(Give::All(slot, reason));
            enough = count.enough(self, &ask, claim) && self.quota.fits(queue, &claim.amounts);
        }
        self.looks += looked;
        for (from, amounts) in lifted.into_iter().rev() {
            self.quota.charge(from, &amounts);
        }
        enough.then_some(chosen)
    }

    /// Whether the quota of the claimant is short as things stand.
    fn quota_short(&self, claim: &Claim) -> bool {
        self.job(claim.slot).is_some_and(|job| !self.quota.fits(job.queue, &claim.amounts))
    }

    /// On what grounds a running job may be stopped for the claimant.
    fn may_stop(
        &self,
        claim: &Claim,
        priority: i16,
        other: &Job,
        by_order: bool,
    ) -> Option<StopReason> {
        let ran = self.now.saturating_sub(other.started);
        if ran < other.spec.minimum_run || ran == 0 {
            return None;
        }
        let queue = self.job(claim.slot)?.queue;
        if !by_order {
            if other.queue == queue {
                return (other.spec.priority < priority).then_some(StopReason::Priority);
            }
            return self
                .quota
                .may_reclaim(queue, &claim.amounts, other.queue)
                .then_some(StopReason::Reclaimed);
        }
        // The minimum run of the policy was looked at when the list was made.
        let within = !self.quota.borrows(other.queue, &claim.amounts);
        if other.spec.priority > priority || (claim.borrows && within && self.quota.governs()) {
            return None;
        }
        Some(if claim.first { StopReason::Starvation } else { StopReason::Order })
    }

    /// Takes what was chosen, spares whom it can, and decides. False, and nothing changed, if it
    /// does not make enough room after all.
    fn exchange(&mut self, claim: &Claim, chosen: Vec<Give>) -> bool {
        for give in &chosen {
            self.take_from(give);
        }
        if self.room_for(claim.slot).is_err() {
            for give in chosen.iter().rev() {
                self.return_to(give);
            }
            return false;
        }
        let mut given = Vec::new();
        // The last chosen is the best of them: spare from there.
        for give in chosen.into_iter().rev() {
            self.return_to(&give);
            if self.room_for(claim.slot).is_err() {
                self.take_from(&give);
                given.push(give);
            }
        }
        given.reverse();
        if !self.is_stable(claim, &given) {
            for give in given.iter().rev() {
                self.return_to(give);
            }
            return false;
        }
        let mut shrunk: Vec<(u32, Vec<Placed>)> = Vec::new();
        for give in given {
            match give {
                Give::All(slot, why) => self.stop_lifted(slot, why, Some(claim.id)),
                Give::Share(slot, placed) => match shrunk.last_mut() {
                    Some((last, shares)) if *last == slot => shares.push(placed),
                    _ => shrunk.push((slot, vec![placed])),
                },
            }
        }
        for (slot, shares) in shrunk {
            self.shrink_lifted(slot, &shares, Some(claim.id));
        }
        true
    }

    fn take_from(&mut self, give: &Give) {
        match give {
            Give::All(slot, _) => self.lift(*slot),
            Give::Share(slot, placed) => self.lift_share(*slot, placed),
        }
    }

    fn return_to(&mut self, give: &Give) {
        match give {
            Give::All(slot, _) => self.put_back(*slot),
            Give::Share(slot, placed) => self.put_back_share(*slot, placed),
        }
    }

    /// Whether none of those who are stopped could stop the claimant in turn.
    fn is_stable(&mut self, claim: &Claim, given: &[Give]) -> bool {
        let Some(job) = self.job(claim.slot) else { return false };
        let (queue, priority) = (job.queue, job.spec.priority);
        self.quota.charge(queue, &claim.amounts);
        let back = given.iter().any(|give| {
            let Give::All(slot, why) = give else { return false };
            let Some(other) = self.job(*slot) else { return false };
            let amounts = Self::amounts(other, other.spec.nodes.min.into(), other.gpu_type);
            if other.queue == queue {
                return other.spec.priority > priority;
            }
            let reclaims = self.quota.may_reclaim(other.queue, &amounts, queue);
            let by_score = *why == StopReason::Order
                && self.order.displaces((self.score(other), other.sequence), claim.score);
            reclaims || by_score
        });
        self.quota.release(queue, &claim.amounts);
        !back
    }

    /// Stops jobs until no queue holds more than it may, after quotas were cut.
    pub(super) fn mend_quotas(&mut self) {
        if !std::mem::take(&mut self.quota_cut) {
            return;
        }
        while let Some((queue, dimension)) = self.quota.overdrawn() {
            let holds = |job: &Job| {
                let amounts = Self::amounts(job, job.placement.len() as u64, job.gpu_type);
                amounts.get(dimension) > 0 && self.quota.is_below(job.queue, queue)
            };
            let share =
                self.surplus().into_iter().find(|(slot, _)| self.job(*slot).is_some_and(holds));
            if let Some((slot, placed)) = share {
                self.lift_share(slot, &placed);
                self.shrink_lifted(slot, &[placed], None);
                continue;
            }
            let cheapest = self
                .running
                .iter()
                .filter_map(|&slot| Some((slot, self.job(slot)?)))
                .filter(|(_, job)| holds(job))
                .min_by_key(|(_, job)| {
                    (job.spec.priority, job.at_stake(self.now), u64::MAX - job.sequence)
                });
            let Some((slot, _)) = cheapest else { break };
            self.lift(slot);
            self.stop_lifted(slot, StopReason::QuotaCut, None);
        }
    }
}

/// Counts nodes on which the claimant would fit. Exact for whole GPUs; for parts of GPUs every
/// touched node counts, and the exchange finds out.
struct Count {
    needs: usize,
    fitting: Vec<NodeId>,
}

impl Count {
    fn begin(scheduler: &mut Scheduler, claim: &Claim, needs: u16) -> Self {
        let tally = &mut scheduler.tally;
        tally.search = tally.search.wrapping_add(1);
        let mut count = Self { needs: needs.into(), fitting: Vec::new() };
        let Some(job) = scheduler.job(claim.slot) else { return count };
        let ask = job.spec.per_node;
        let most = match job.spec.topology {
            // All that fit, since it matters where they are.
            Topology::Require(_) if needs > 1 => scheduler.cluster.len() as u16,
            _ => needs,
        };
        let found = scheduler.cluster.find(&ask, most, Topology::Anywhere, &claim.filter);
        for id in found {
            let entry = scheduler.entry(id, claim, &ask);
            entry.fits = true;
            count.fitting.push(id);
        }
        count
    }

    /// Adds what a job would give. True if any of it is on a node that could be used.
    fn free(
        &mut self,
        scheduler: &mut Scheduler,
        claim: &Claim,
        ask: &crate::model::Ask,
        their: &crate::model::Ask,
        placement: &[Placed],
    ) -> bool {
        let mut touched = false;
        for placed in placement {
            let entry = scheduler.entry(placed.node, claim, ask);
            if !entry.usable {
                continue;
            }
            touched = true;
            entry.cpu += their.cpu;
            entry.memory += their.memory;
            if matches!(their.gpu, GpuAsk::Whole(_)) {
                entry.whole += placed.devices.count_ones() as u8;
            }
            let gpus = match ask.gpu {
                GpuAsk::None | GpuAsk::Fraction(_) | GpuAsk::Mig(_) => true,
                GpuAsk::Whole(count) => {
                    // Parts of GPUs may add up to whole ones; the exchange will tell.
                    entry.whole >= count || !matches!(their.gpu, GpuAsk::Whole(_))
                }
            };
            if !entry.fits && gpus && entry.cpu >= ask.cpu && entry.memory >= ask.memory {
                entry.fits = true;
                self.fitting.push(placed.node);
            }
        }
        touched
    }

    fn enough(&self, scheduler: &Scheduler, _ask: &crate::model::Ask, claim: &Claim) -> bool {
        if self.fitting.len() < self.needs {
            return false;
        }
        let Some(job) = scheduler.job(claim.slot) else { return false };
        if self.needs == 1 {
            return true;
        }
        let domain = |id: NodeId| match job.spec.topology {
            Topology::Require(level) => scheduler.cluster.domain(id, level),
            _ => None,
        };
        let kind = |id: NodeId| {
            let kind = scheduler.cluster.gpu_type_of(id);
            if job.spec.per_node.gpu == GpuAsk::None { GpuType(0) } else { kind }
        };
        // The newest decides: before it there was not enough.
        let Some(&newest) = self.fitting.last() else { return false };
        let alike = self
            .fitting
            .iter()
            .filter(|&&id| domain(id) == domain(newest) && kind(id) == kind(newest));
        alike.count() >= self.needs
    }
}

impl Scheduler {
    /// The tally of a node in this search.
    fn entry(&mut self, id: NodeId, claim: &Claim, ask: &crate::model::Ask) -> &mut Entry {
        let index = id.0 as usize;
        if self.tally.nodes.len() <= index {
            self.tally.nodes.resize(index + 1, Entry::default());
        }
        let search = self.tally.search;
        if self.tally.nodes[index].search != search {
            let mut entry = Entry { search, ..Entry::default() };
            if let Some(node) = self.cluster.node(id) {
                entry.usable = node.status == Status::Up
                    && node.kept_for.is_none_or(|slot| slot == claim.slot)
                    && node.could_fit(ask)
                    && claim.filter.admits_node(node, ask);
                entry.cpu = node.cpu_free;
                entry.memory = node.memory_free;
                entry.whole = node.whole_free;
            }
            self.tally.nodes[index] = entry;
        }
        &mut self.tally.nodes[index]
    }
}
