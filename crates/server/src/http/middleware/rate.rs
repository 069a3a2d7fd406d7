//! How often one principal may ask.
//!
//! A token bucket for each: it holds `request_burst` and fills by `requests_per_second`. The map
//! is bounded; when full, buckets that have filled up again are forgotten, which changes nothing
//! for their owners. If none has, the newcomer is let through unmetered: a full map must not
//! become a way to lock others out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Error, PrincipalId, Result, code};
use tokio::time::Instant;

use crate::http::config::LimitsConfig;

#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    per_second: f64,
    burst: f64,
    max_tracked: usize,
    buckets: Arc<Mutex<HashMap<PrincipalId, Bucket>>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl RateLimit {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        Self {
            per_second: f64::from(limits.requests_per_second.max(1)),
            burst: f64::from(limits.request_burst.max(1)),
            max_tracked: limits.max_tracked_principals,
            buckets: Arc::default(),
        }
    }

    /// Takes one token, or says when there will be one.
    pub(crate) fn take(&self, principal: PrincipalId) -> Result<()> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(&principal) {
            return self.draw(bucket, now);
        }
        if buckets.len() >= self.max_tracked {
            buckets.retain(|_, bucket| self.filled(bucket, now) < self.burst);
            if buckets.len() >= self.max_tracked {
                return Ok(());
            }
        }
        let full = Bucket { tokens: self.burst, at: now };
        self.draw(buckets.entry(principal).or_insert(full), now)
    }

    fn draw(&self, bucket: &mut Bucket, now: Instant) -> Result<()> {
        bucket.tokens = self.filled(bucket, now);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second);
            return Err(refusal(wait));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let earned = now.duration_since(bucket.at).as_secs_f64() * self.per_second;
        (bucket.tokens + earned).min(self.burst)
    }
}

fn refusal(wait: Duration) -> Error {
    let message = "too many requests from this principal (`limits.requests_per_second`)";
    // Retry-After counts whole seconds; less than one would read as "at once".
    Error::new(&code::RATE_LIMITED, message).retry_after(wait.max(Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(max_tracked: usize) -> RateLimit {
        RateLimit { per_second: 10.0, burst: 3.0, max_tracked, buckets: Arc::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_rate() {
        let limit = limit(10);
        let (greedy, other) = (PrincipalId::new(), PrincipalId::new());
        let accepted = |who| (0..5).filter(|_| limit.take(who).is_ok()).count();
        assert_eq!(accepted(greedy), 3);
        assert_eq!(limit.take(greedy).unwrap_err().code(), &code::RATE_LIMITED);
        assert_eq!(accepted(other), 3, "one principal's haste is not another's");
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(accepted(greedy), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_map_is_bounded() {
        let limit = limit(2);
        for _ in 0..10 {
            limit.take(PrincipalId::new()).unwrap();
        }
        assert_eq!(limit.buckets.lock().unwrap().len(), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        limit.take(PrincipalId::new()).unwrap();
        assert_eq!(limit.buckets.lock().unwrap().len(), 1);
    }
}
