//! How long a run takes, learned from runs.
//!
//! Runs are told apart by how many bytes go in, in powers of two: a request of many rows or of a
//! long text is not judged by those of short ones.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A request whose run takes no longer is computed where it arrives: handing it to another thread
/// and back would take as long, and it does not hold up others that the same thread serves.
pub(super) const LIGHT: Duration = Duration::from_micros(150);

/// What it takes to let several requests find each other, each of which waits in line and is woken
/// again: a model that saves more than this on each row by computing them together is worth that.
pub(super) const MEETING: Duration = Duration::from_micros(6);

/// Requests that found each other are computed where they met if that takes no longer: the thread
/// has others to serve.
pub(super) const BRIEF: Duration = Duration::from_millis(1);

/// The weight of a new run is one of so many.
const WEIGHT: u64 = 8;
/// Up to here a run that took much longer than usual is taken for one that was interrupted.
const INTERRUPTED_NS: u64 = 20_000_000;

/// What runs take.
#[derive(Debug)]
pub(super) struct Costs([AtomicU64; 40]);

impl Default for Costs {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Costs {
    pub(super) fn learn(&self, bytes: usize, took: Duration) {
        let cell = &self.0[self.place(bytes)];
        let took = nanos(took).max(1);
        // Two who learn at once may lose one of both: it is an average.
        cell.store(averaged(cell.load(Relaxed), took), Relaxed);
    }

    /// How long a run with so many bytes is going to take; none if nothing like it was seen.
    pub(super) fn expect(&self, bytes: usize) -> Option<Duration> {
        let place = self.place(bytes);
        let known = |place: usize| Some(self.0[place].load(Relaxed)).filter(|&ns| ns > 0);
        if let Some(ns) = known(place) {
            return Some(Duration::from_nanos(ns));
        }
        // From a smaller one at most in proportion; from a larger one at most as long.
        let smaller = (0..place).rev().find_map(|other| {
            known(other).map(|ns| ns.saturating_mul(1 << (place - other).min(30)))
        });
        let larger = (place + 1..self.0.len()).find_map(known);
        let ns = match (smaller, larger) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        ns.map(Duration::from_nanos)
    }

    fn place(&self, bytes: usize) -> usize {
        (bytes.max(1).ilog2() as usize).min(self.0.len() - 1)
    }
}

fn averaged(known: u64, took: u64) -> u64 {
    if known == 0 {
        return took;
    }
    if took > INTERRUPTED_NS && took > known * 4 {
        // Whatever it was, such a run must not happen again where others are served.
        return took / 2;
    }
    let took = if took < INTERRUPTED_NS { took.min(known * 4 + 50_000) } else { took };
    (known * (WEIGHT - 1) + took) / WEIGHT
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn what_was_not_seen_is_judged_by_what_was() {
        let costs = Costs::default();
        assert_eq!(costs.expect(10), None);
        costs.learn(16, 10 * MICRO);
        assert_eq!(costs.expect(31), Some(10 * MICRO));
        assert_eq!(costs.expect(64), Some(40 * MICRO), "in proportion");
        assert_eq!(costs.expect(1), Some(10 * MICRO), "at most as long");
        costs.learn(128, 20 * MICRO);
        assert_eq!(costs.expect(64), Some(20 * MICRO), "the nearer bound");
        assert!(costs.expect(usize::MAX).unwrap() > 100 * MICRO);
    }

    #[test]
    fn one_interruption_does_not_make_a_light_model_heavy_but_a_change_does() {
        let costs = Costs::default();
        for _ in 0..100 {
            costs.learn(4, 10 * MICRO);
        }
        costs.learn(4, 4000 * MICRO);
        assert!(costs.expect(4).unwrap() < LIGHT, "{:?}", costs.expect(4));
        for _ in 0..40 {
            costs.learn(4, 4000 * MICRO);
        }
        assert!(costs.expect(4).unwrap() > 2000 * MICRO);
        let costs = Costs::default();
        costs.learn(4, 10 * MICRO);
        costs.learn(4, Duration::from_secs(2));
        assert!(costs.expect(4).unwrap() > LIGHT, "a long run is believed at once");
    }
}
