//! How often one caller may ask an endpoint that says so.
//!
//! A caller is a token, or a principal that came without one. Each has an allowance that fills by
//! `per_second` up to `burst`; kept is only the moment at which it will be full again, so that one
//! that is full needs no memory, and a change of the rate holds from the next request on.
//!
//! Must hold: the memory is bounded. When it is full, those who are not in it are let through: a
//! crowd of callers must not become a way to lock others out.
//!
//! Not here: the limit on all requests of a principal (`limits.requests_per_second`). Each server
//! counts for itself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Ctx, EndpointId, Error, Result, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How often one caller may ask.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Requests a second, over time.
    #[schemars(range(min = 0.001, max = 1_000_000.0))]
    pub per_second: f64,
    /// Requests at once, by a caller that was quiet; as many as in a second if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
}

impl Rate {
    /// Refuses what cannot work, naming the field.
    pub(crate) fn check(&self) -> Result<()> {
        if !(0.001..=1e6).contains(&self.per_second) {
            return Err(Error::invalid("rate.per_second", self.per_second, "0.001 to 1000000"));
        }
        match self.burst {
            Some(burst) if !(1..=1_000_000).contains(&burst) => {
                Err(Error::invalid("rate.burst", burst, "1 to 1000000"))
            }
            _ => Ok(()),
        }
    }

    fn burst(&self) -> f64 {
        self.burst.map_or_else(|| self.per_second.ceil().max(1.0), f64::from)
    }
}

/// How many maps there are: callers in different ones do not wait for each other.
const SHARDS: usize = 16;
/// The most callers in one map.
const MOST: usize = 4096;
/// How often a full map is looked through for callers whose allowance is full again.
const TIDY_EVERY: u64 = 1_000_000_000;

/// An endpoint, and a caller of it.
type Who = (EndpointId, Uuid);

/// The allowances of all callers of all endpoints, on this server.
#[derive(Debug)]
pub(crate) struct Rates {
    began: Instant,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// When each caller's allowance is full, in nanoseconds since the beginning.
    full_at: HashMap<Who, u64>,
    tidied: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            refused: AtomicU64::new(0),
        }
    }
}

impl Rates {
    /// Counts a request of a caller, or refuses it with the time to wait.
    pub(crate) fn take(&self, ctx: &Ctx, endpoint: EndpointId, rate: &Rate) -> Result<()> {
        let principal = &ctx.principal;
        let caller =
            principal.token.as_ref().map_or(*principal.id.as_uuid(), |token| *token.id.as_uuid());
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let who = (endpoint, caller);
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let place = self.hasher.hash_one(who) as usize % SHARDS;
        let mut shard = self.shards[place].lock().unwrap_or_else(PoisonError::into_inner);
        shard.take(who, rate, now).map_err(|wait| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let Rate { per_second, .. } = rate;
            let text = format!(
                "too many requests from this caller to the endpoint: {per_second} a second are \
                 allowed, and {} at once",
                rate.burst()
            );
            // Retry-After counts whole seconds; less than one would read as "at once".
            Error::new(&code::RATE_LIMITED, text).retry_after(wait.max(Duration::from_secs(1)))
        })
    }

    /// How many requests were refused since the server began.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Shard {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "nanoseconds of some years are far from the edges"
    )]
    fn take(&mut self, who: Who, rate: &Rate, now: u64) -> Result<(), Duration> {
        let each = (1e9 / rate.per_second) as u64;
        let all = (1e9 / rate.per_second * rate.burst()) as u64;
        if let Some(full_at) = self.full_at.get_mut(&who) {
            let next = (*full_at).max(now) + each;
            if next > now + all {
                return Err(Duration::from_nanos(next - now - all));
            }
            *full_at = next;
            return Ok(());
        }
        if self.full_at.len() >= MOST && now >= self.tidied + TIDY_EVERY {
            self.tidied = now;
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.full_at.len() < MOST {
            self.full_at.insert(who, now + each);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(per_second: f64, burst: Option<u32>) -> Rate {
        Rate { per_second, burst }
    }

    fn who() -> Who {
        (EndpointId::new(), Uuid::now_v7())
    }

    #[test]
    fn a_burst_then_the_rate() {
        let (mut shard, rate) = (Shard::default(), rate(10.0, Some(3)));
        let (greedy, other) = (who(), who());
        let mut taken = |who, now| (0..5).filter(|_| shard.take(who, &rate, now).is_ok()).count();
        assert_eq!(taken(greedy, SECOND), 3);
        assert_eq!(taken(other, SECOND), 3, "one caller's haste is not another's");
        assert_eq!(taken(greedy, SECOND + SECOND / 5), 2);
        assert_eq!(taken(greedy, 10 * SECOND), 3, "no more than a burst is saved up");
        let wait = shard.take(greedy, &rate, 10 * SECOND).unwrap_err();
        assert_eq!(wait.as_millis(), 100);
    }

    #[test]
    fn a_rate_below_one_and_a_rate_that_changes() {
        let (mut shard, slow) = (Shard::default(), rate(0.5, None));
        let who = who();
        assert!(shard.take(who, &slow, 0).is_ok());
        let wait = shard.take(who, &slow, SECOND).unwrap_err();
        assert_eq!(wait.as_secs(), 1);
        assert!(shard.take(who, &slow, 2 * SECOND).is_ok());
        assert!(shard.take(who, &rate(100.0, Some(1000)), 2 * SECOND).is_ok());
    }

    #[test]
    fn the_memory_is_bounded_and_nobody_is_locked_out() {
        let (mut shard, rate) = (Shard::default(), rate(1.0, Some(1)));
        for _ in 0..MOST + 100 {
            shard.take(who(), &rate, 5).unwrap();
        }
        assert_eq!(shard.full_at.len(), MOST);
        shard.take(who(), &rate, 3 * SECOND).unwrap();
        assert_eq!(shard.full_at.len(), 1, "those whose allowance is full are forgotten");
    }

    #[test]
    fn mistakes_are_named() {
        for (wrong, field) in [
            (rate(0.0, None), "rate.per_second"),
            (rate(f64::NAN, None), "rate.per_second"),
            (rate(1e9, None), "rate.per_second"),
            (rate(1.0, Some(0)), "rate.burst"),
        ] {
            assert_eq!(wrong.check().unwrap_err().field(), Some(field));
        }
        rate(0.001, Some(1)).check().unwrap();
    }
}
