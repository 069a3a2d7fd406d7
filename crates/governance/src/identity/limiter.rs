//! How often a source may fail: a token bucket per source, in a table of bounded size.
//!
//! Only failures cost: what is drawn before costly work is paid back when the work succeeds, so
//! that work which is broken off counts as a failure. A flood of sources cannot grow the table: the
//! ones that have recovered, then the ones that failed longest ago, are forgotten.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Clock, Timestamp};

use super::config::FailureConfig;

/// Who is counted as one, or the callers whose address is not known.
type Source = Option<IpAddr>;

fn source(address: Option<IpAddr>) -> Source {
    address.map(one_source)
}

/// Who is counted as one source: an IPv4 address, or an IPv6 /64, which is what one customer is
/// given.
#[must_use]
pub fn one_source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Failures still granted.
    left: f64,
    at: Timestamp,
}

/// The table of sources.
#[derive(Debug)]
pub(super) struct FailureLimiter {
    config: FailureConfig,
    clock: Clock,
    sources: Mutex<HashMap<Source, Bucket>>,
}

impl FailureLimiter {
    #[must_use]
    pub(super) fn new(config: FailureConfig, clock: Clock) -> Self {
        Self { config, clock, sources: Mutex::default() }
    }

    /// Whether the source may try; if not, how long it must wait.
    pub(super) fn check(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        let now = self.clock.now();
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = sources.get(&source(address)) else { return Ok(()) };
        self.granted(self.refilled(bucket, now))
    }

    /// Takes one failure from the source; if it has none left, says how long it must wait.
    pub(super) fn draw(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        let now = self.clock.now();
        let key = source(address);
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if !sources.contains_key(&key) && sources.len() >= self.config.max_sources {
            self.make_room(&mut sources, now);
        }
        let full = Bucket { left: f64::from(self.config.burst), at: now };
        let bucket = sources.entry(key).or_insert(full);
        let left = self.refilled(bucket, now);
        self.granted(left)?;
        *bucket = Bucket { left: left - 1.0, at: now };
        Ok(())
    }

    /// Pays back what was drawn for something that turned out to be no failure.
    pub(super) fn refund(&self, address: Option<IpAddr>) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = sources.get_mut(&source(address)) {
            bucket.left = (bucket.left + 1.0).min(f64::from(self.config.burst));
        }
    }

    fn granted(&self, left: f64) -> Result<(), Duration> {
        if left >= 1.0 {
            return Ok(());
        }
        let seconds = (1.0 - left) / self.per_second();
        Err(Duration::from_secs_f64(seconds.clamp(1.0, 3600.0)))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.config.per_minute) / 60.0
    }

    fn refilled(&self, bucket: &Bucket, now: Timestamp) -> f64 {
        let grown = bucket.left + now.since(bucket.at).as_secs_f64() * self.per_second();
        grown.min(f64::from(self.config.burst))
    }

    /// Drops a quarter of the table at least, so that a full table is not sorted on every failure.
    fn make_room(&self, sources: &mut HashMap<Source, Bucket>, now: Timestamp) {
        let burst = f64::from(self.config.burst);
        sources.retain(|_, bucket| self.refilled(bucket, now) < burst);
        let keep = self.config.max_sources - self.config.max_sources.div_ceil(4);
        if sources.len() <= keep {
            return;
        }
        let mut times: Vec<_> = sources.iter().map(|(key, bucket)| (bucket.at, *key)).collect();
        times.sort_unstable_by_key(|(at, _)| *at);
        for (_, key) in times.into_iter().take(sources.len() - keep) {
            sources.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limiter(burst: u32, per_minute: u32, max_sources: usize) -> (FailureLimiter, Clock) {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000));
        let config = FailureConfig { burst, per_minute, max_sources };
        (FailureLimiter::new(config, clock.clone()), clock)
    }

    fn ip(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn a_source_that_fails_too_often_waits_and_others_do_not() {
        let (limiter, clock) = limiter(3, 6, 100);
        for _ in 0..3 {
            assert!(limiter.check(ip("192.0.2.1")).is_ok());
            assert!(limiter.draw(ip("192.0.2.1")).is_ok());
        }
        assert_eq!(limiter.check(ip("192.0.2.1")), Err(Duration::from_secs(10)));
        assert_eq!(limiter.draw(ip("192.0.2.1")), Err(Duration::from_secs(10)));
        assert!(limiter.check(ip("192.0.2.2")).is_ok());
        assert!(limiter.check(None).is_ok());
        clock.advance(Duration::from_secs(10));
        assert!(limiter.check(ip("192.0.2.1")).is_ok());
    }

    #[test]
    fn what_is_paid_back_can_be_drawn_again_and_no_more_than_that() {
        let (limiter, _) = limiter(2, 6, 100);
        let here = ip("192.0.2.1");
        limiter.refund(here);
        for _ in 0..5 {
            assert!(limiter.draw(here).is_ok());
            limiter.refund(here);
            limiter.refund(here);
        }
        assert!(limiter.draw(here).is_ok() && limiter.draw(here).is_ok());
        assert!(limiter.draw(here).is_err());
        limiter.refund(here);
        assert!(limiter.check(here).is_ok());
    }

    #[test]
    fn one_ipv6_network_and_both_spellings_of_an_ipv4_address_are_one_source() {
        assert_eq!(source(ip("2001:db8:1:2:3::1")), source(ip("2001:db8:1:2:ffff::9")));
        assert_ne!(source(ip("2001:db8:1:2::1")), source(ip("2001:db8:1:3::1")));
        assert_eq!(source(ip("::ffff:192.0.2.1")), source(ip("192.0.2.1")));
    }

    proptest! {
        #[test]
        fn the_table_never_outgrows_its_limit(
            addresses in proptest::collection::vec(any::<u32>(), 1..400),
            max in 1usize..20,
        ) {
            let (limiter, clock) = limiter(2, 1, max);
            for address in addresses {
                let _ = limiter.draw(Some(IpAddr::from(address.to_be_bytes())));
                clock.advance(Duration::from_micros(7));
                prop_assert!(limiter.sources.lock().unwrap().len() <= max);
            }
        }
    }
}
