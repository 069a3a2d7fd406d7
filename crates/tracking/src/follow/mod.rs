//! Following a run live: its status, its metrics and its console log, as server-sent events.
//!
//! Must hold:
//! - A follower that comes back with the id it saw last misses neither the last state nor a byte of
//!   the log. It may be told again what it knows; values between two looks are not told, since the
//!   history has them.
//! - A stream lasts a minute at most and ends as soon as anyone's rights change: whoever comes back
//!   is judged anew.
//! - There are only so many at once, each with a bounded reply at a time.

mod cursor;
mod http;
mod stream;

pub(crate) use http::routes;

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
    /// How often a followed run is looked at.
    pub look_every: HumanDuration,
}

impl Default for FollowConfig {
    fn default() -> Self {
        Self { max_streams: 256, look_every: HumanDuration::from_millis(500) }
    }
}
