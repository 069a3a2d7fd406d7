//! Following a run live: its status, its metrics and its console log, as server-sent events.
//!
//! Must hold:
//! - A follower that comes back with the id it saw last misses neither the last state nor a byte of
//!   the log. It may be told again what it knows; values between two looks are not told, since the
//!   history has them.
//! - A stream lasts a minute at most and ends as soon as anyone's rights change: whoever comes back
//!   is judged anew.
//! - There are only so many at once, and of one caller, each with a bounded reply at a time. One
//!   whose client does not take what it is sent is ended by the server's `write_timeout`.
//! - However fast the client reads, a run is looked at only so often.

mod cursor;
mod http;
mod seats;
mod stream;

pub(crate) use http::routes;
pub(crate) use seats::Seats;

use falaj_base::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of following runs live.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FollowConfig {
    /// How many runs are followed at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_streams: usize,
    /// How many of them are one caller's.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_streams_per_caller: usize,
    /// How often a followed run is looked at, at most. A log that is longer than one event is told
    /// without waiting.
    pub look_every: HumanDuration,
}

impl Default for FollowConfig {
    fn default() -> Self {
        Self {
            max_streams: 256,
            max_streams_per_caller: 32,
            look_every: HumanDuration::from_millis(500),
        }
    }
}
