//! What a queue has used of late: resource-seconds that fade, half of them with every half-life. Pure.
//!
//! Must hold: it depends on what was held when, and not on how often anybody looked.

use crate::model::{Amounts, Dimension, Millis};

/// What usage is counted in: a share of the cluster is the largest of these.
pub const MEASURED: [Dimension; 3] = [Dimension::Cpu, Dimension::Memory, Dimension::Gpu];

/// Resource-seconds, in the order of [`MEASURED`].
pub type Seconds = [u64; MEASURED.len()];

/// How fast usage fades.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HalfLife {
    seconds: f64,
}

impl HalfLife {
    /// Nothing is remembered if it is 0.
    #[must_use]
    pub fn of(half_life: Millis) -> Self {
        Self { seconds: half_life as f64 / 1000.0 }
    }

    #[must_use]
    pub fn is_off(self) -> bool {
        self.seconds <= 0.0
    }

    /// What is left of something after a while, and what is not.
    fn split(self, millis: Millis) -> (f64, f64) {
        let gone = -(-(millis as f64 / 1000.0) / self.seconds * std::f64::consts::LN_2).exp_m1();
        (1.0 - gone, gone)
    }

    /// What somebody comes to who holds one of something for ever.
    fn whole(self) -> f64 {
        self.seconds / std::f64::consts::LN_2
    }

    /// What is left at `now` of what somebody had used by then.
    #[must_use]
    pub fn faded(self, used: f64, then: Millis, now: Millis) -> f64 {
        if self.is_off() { 0.0 } else { used * self.split(now.saturating_sub(then)).0 }
    }

    /// What is left at `now` of what `held` came to between two moments.
    #[must_use]
    pub fn left_of(self, held: f64, (from, to): (Millis, Millis), now: Millis) -> f64 {
        if self.is_off() || to <= from {
            return 0.0;
        }
        let (to, now) = (to.min(now), now.max(from));
        let (_, gained) = self.split(to.saturating_sub(from));
        let (left, _) = self.split(now.saturating_sub(to));
        held * self.whole() * gained * left
    }
}

/// The usage of one queue, as of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    at: Millis,
    seconds: [f64; MEASURED.len()],
}

impl Usage {
    /// Lets time pass in which so much was held.
    pub(crate) fn bring(&mut self, now: Millis, held: &Amounts, half_life: HalfLife) {
        if now <= self.at || half_life.is_off() {
            return;
        }
        let (left, gone) = half_life.split(now - self.at);
        for (seconds, dimension) in self.seconds.iter_mut().zip(MEASURED) {
            *seconds = *seconds * left + held.get(dimension) as f64 * half_life.whole() * gone;
        }
        self.at = now;
    }

    /// Adds what was used before anybody counted here. It has faded by now.
    pub(crate) fn add(&mut self, seconds: &Seconds) {
        for (sum, more) in self.seconds.iter_mut().zip(seconds) {
            *sum += *more as f64;
        }
    }

    /// As a share of the cluster: 1 for somebody who has had all of it for long.
    pub(crate) fn share(&self, capacity: &Amounts, half_life: HalfLife) -> f64 {
        if half_life.is_off() {
            return 0.0;
        }
        let share = |(seconds, dimension): (&f64, Dimension)| {
            let all = capacity.get(dimension) as f64 * half_life.whole();
            if all > 0.0 { seconds / all } else { 0.0 }
        };
        self.seconds.iter().zip(MEASURED).map(share).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = 3_600_000;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn half_of_it_is_left_after_a_half_life() {
        let half_life = HalfLife::of(HOUR);
        let capacity = Amounts::ZERO.with(Dimension::Cpu, 1000);
        let mut usage = Usage::default();
        usage.bring(100 * HOUR, &capacity, half_life);
        assert!(close(usage.share(&capacity, half_life), 1.0), "it had all of it for long");
        usage.bring(101 * HOUR, &Amounts::ZERO, half_life);
        assert!(close(usage.share(&capacity, half_life), 0.5));
        usage.bring(103 * HOUR, &Amounts::ZERO, half_life);
        assert!(close(usage.share(&capacity, half_life), 0.125));
    }

    #[test]
    fn looking_more_often_changes_nothing_and_it_can_be_found_again() {
        let half_life = HalfLife::of(7 * HOUR);
        let held = Amounts::ZERO.with(Dimension::Gpu, 700).with(Dimension::Memory, 12);
        let (mut once, mut often) = (Usage::default(), Usage::default());
        once.bring(9 * HOUR, &held, half_life);
        once.bring(20 * HOUR, &Amounts::ZERO, half_life);
        for minute in 1..=9 * 60 {
            often.bring(minute * 60_000, &held, half_life);
        }
        for minute in 9 * 60..=20 * 60 {
            often.bring(minute * 60_000, &Amounts::ZERO, half_life);
        }
        for (at, dimension) in MEASURED.into_iter().enumerate() {
            assert!(close(once.seconds[at], often.seconds[at]));
            let held = held.get(dimension) as f64;
            let again = half_life.left_of(held, (0, 9 * HOUR), 20 * HOUR);
            assert!(close(again, once.seconds[at]), "{again} {}", once.seconds[at]);
        }
        let then = half_life.left_of(5.0, (0, 9 * HOUR), 11 * HOUR);
        let now = half_life.left_of(5.0, (0, 9 * HOUR), 20 * HOUR);
        assert!(close(half_life.faded(then, 11 * HOUR, 20 * HOUR), now));
        assert!(close(HalfLife::of(0).faded(then, 0, HOUR), 0.0));
        assert!(close(half_life.left_of(5.0, (3, 3), 9), 0.0));
        assert!(close(HalfLife::of(0).left_of(5.0, (0, HOUR), HOUR), 0.0));
    }
}
