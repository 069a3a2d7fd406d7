//! When a gang ends, and as what: purely, from what happens and when.
//!
//! Must hold:
//! - The first thing that ends a gang names its end; what follows from it does not.
//! - Once it is ending, there is a moment at which every rank is killed.

use crate::{End, Notice, RankEnd};

/// No gang outlives its first failure longer, whatever was asked for.
const LONGEST_GANG_GRACE_MS: u64 = 5_000;

// All times are milliseconds, and moments are counted from the start.

/// What is to be done to all ranks that still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Nothing,
    Checkpoint,
    Terminate,
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) grace: u64,
    pub(super) gang_grace: u64,
    pub(super) limit: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Gang {
    rules: Rules,
    ends: Vec<Option<RankEnd>>,
    cause: Option<End>,
    kill_at: Option<u64>,
}

impl Gang {
    pub(super) fn new(ranks: usize, rules: Rules) -> Self {
        Self { rules, ends: vec![None; ranks], cause: None, kill_at: None }
    }

    pub(super) fn rank_ended(&mut self, rank: usize, how: RankEnd, now: u64) -> Order {
        match self.ends.get_mut(rank) {
            Some(end @ None) => *end = Some(how),
            _ => return Order::Nothing,
        }
        if how == RankEnd::Exit(0) {
            return Order::Nothing;
        }
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let grace = self.rules.gang_grace.min(LONGEST_GANG_GRACE_MS);
        self.ending(End::Failed { rank, how }, now, grace)
    }

    pub(super) fn told(&mut self, notice: Notice, now: u64) -> Order {
        match notice {
            Notice::Checkpoint if self.cause.is_none() => Order::Checkpoint,
            Notice::Checkpoint => Order::Nothing,
            Notice::Stop => self.ending(End::Stopped, now, self.rules.grace),
            Notice::Kill => {
                self.cause.get_or_insert(End::Stopped);
                self.kill_at = Some(now);
                Order::Kill
            }
        }
    }

    /// What the time asks for.
    pub(super) fn tick(&mut self, now: u64) -> Order {
        if self.kill_at.is_some_and(|at| at <= now) {
            return Order::Kill;
        }
        if self.cause.is_none() && self.rules.limit.is_some_and(|limit| limit <= now) {
            return self.ending(End::TimedOut, now, self.rules.grace);
        }
        Order::Nothing
    }

    /// When [`Self::tick`] has something to say next.
    pub(super) fn next(&self) -> Option<u64> {
        self.kill_at.or(if self.cause.is_none() { self.rules.limit } else { None })
    }

    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    pub(super) fn end(self) -> (End, Vec<Option<RankEnd>>) {
        (self.cause.unwrap_or(End::Succeeded), self.ends)
    }

    fn ending(&mut self, cause: End, now: u64, grace: u64) -> Order {
        if self.cause.is_some() {
            return Order::Nothing;
        }
        self.cause = Some(cause);
        self.kill_at = Some(now.saturating_add(grace));
        if grace == 0 { Order::Kill } else { Order::Terminate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: RankEnd = RankEnd::Exit(0);

    fn gang(ranks: usize, limit: Option<u64>) -> Gang {
        Gang::new(ranks, Rules { grace: 30_000, gang_grace: 60_000, limit })
    }

    #[test]
    fn all_must_end_with_zero() {
        let mut gang = gang(2, None);
        assert_eq!(gang.rank_ended(1, OK, 5), Order::Nothing);
        assert!(!gang.is_over());
        assert_eq!(gang.next(), None);
        assert_eq!(gang.rank_ended(0, OK, 9), Order::Nothing);
        assert!(gang.is_over());
        assert_eq!(gang.end(), (End::Succeeded, vec![Some(OK), Some(OK)]));
    }

    #[test]
    fn the_first_failure_names_the_end_and_bounds_the_rest() {
        let mut gang = gang(3, Some(100_000));
        assert_eq!(gang.rank_ended(2, RankEnd::Exit(7), 1_000), Order::Terminate);
        assert_eq!(gang.tick(5_999), Order::Nothing);
        assert_eq!(gang.rank_ended(0, RankEnd::Signal(15), 2_000), Order::Nothing);
        assert_eq!(gang.told(Notice::Stop, 3_000), Order::Nothing);
        assert_eq!(gang.next(), Some(6_000));
        assert_eq!(gang.tick(6_000), Order::Kill);
        gang.rank_ended(1, RankEnd::Signal(9), 6_001);
        assert_eq!(gang.end().0, End::Failed { rank: 2, how: RankEnd::Exit(7) });
    }

    #[test]
    fn a_stop_waits_for_its_grace_and_a_kill_does_not() {
        let mut stopped = gang(1, None);
        assert_eq!(stopped.told(Notice::Checkpoint, 1), Order::Checkpoint);
        assert_eq!(stopped.told(Notice::Stop, 10), Order::Terminate);
        assert_eq!(stopped.told(Notice::Checkpoint, 11), Order::Nothing);
        assert_eq!(stopped.tick(30_009), Order::Nothing);
        assert_eq!(stopped.tick(30_010), Order::Kill);
        assert_eq!(stopped.told(Notice::Kill, 20), Order::Kill);
        stopped.rank_ended(0, OK, 21);
        assert_eq!(stopped.end().0, End::Stopped);
    }

    #[test]
    fn the_time_limit_is_kept() {
        let mut late = gang(1, Some(2_000));
        assert_eq!(late.next(), Some(2_000));
        assert_eq!(late.tick(1_999), Order::Nothing);
        assert_eq!(late.tick(2_000), Order::Terminate);
        assert_eq!(late.next(), Some(32_000));
        late.rank_ended(0, RankEnd::Signal(15), 2_001);
        assert_eq!(late.end().0, End::TimedOut);
    }

    #[test]
    fn no_grace_is_a_kill() {
        let rules = Rules { grace: 0, gang_grace: 0, limit: None };
        let mut gang = Gang::new(1, rules);
        assert_eq!(gang.told(Notice::Stop, 0), Order::Kill);
    }
}
