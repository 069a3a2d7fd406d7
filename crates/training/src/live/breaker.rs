//! Engines that do not answer are left alone for a while, and longer each time. Pure.
//!
//! Must hold: one that answers is asked as often as ever from then on.

use std::time::Duration;

use falaj_base::Timestamp;

/// How often in a row it may fail before it is left alone.
const PATIENT: u32 = 3;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// What is known of an engine that fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breaker {
    failures: u32,
    again_at: Option<Timestamp>,
    /// Since when it does not answer, and what it said last.
    away: Option<(Timestamp, String)>,
}

impl Breaker {
    pub(crate) fn failed(&mut self, now: Timestamp, why: String) {
        let since = self.away.take().map_or(now, |(since, _)| since);
        self.away = Some((since, why));
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.checked_sub(PATIENT);
        self.again_at =
            beyond.map(|times| now + FIRST.saturating_mul(1 << times.min(16)).min(LONGEST));
    }

    /// Until when it is left alone.
    pub(crate) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.again_at.filter(|at| *at > now)
    }

    pub(crate) fn away(&self) -> Option<&(Timestamp, String)> {
        self.away.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_left_alone_for_longer_each_time() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let mut breaker = Breaker::default();
        for _ in 0..2 {
            breaker.failed(at(0), "no".to_owned());
            assert_eq!(breaker.until(at(0)), None, "once is nothing");
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            breaker.failed(at(10), "no".to_owned());
            pauses.push(breaker.until(at(10)).unwrap().since(at(10)).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(breaker.until(at(70)), None);
        assert_eq!(breaker.away(), Some(&(at(0), "no".to_owned())), "since the first time");
    }
}
