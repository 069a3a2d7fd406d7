//! What can be set about answering later.

use falaj_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requests that are answered later.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LaterConfig {
    /// The largest body of a request.
    pub max_body: ByteSize,
    /// How many requests may wait at one endpoint.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_waiting: usize,
    /// How many requests may wait in one project.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_waiting_in_project: usize,
    /// How many requests that have ended are kept in one project.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_kept_in_project: usize,
    /// How much their results may take together.
    pub max_kept_size: ByteSize,
    /// How many requests one server runs at a time, at most half of them for one endpoint.
    #[schemars(range(min = 1, max = 256))]
    pub at_once: usize,
    /// How much memory the requests that one server runs may take, as estimated from their bodies.
    pub memory: ByteSize,
    /// How often a request is run before it is given up; only what may pass is tried again, such as
    /// a server at its limit.
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: u32,
    /// The longest pause between two attempts; the first is a second, and each is twice the last.
    pub longest_pause: HumanDuration,
    /// How long a request of a server that died waits for another to take it over.
    pub takeover: HumanDuration,
    /// How long a request may wait to be answered, unless it says less.
    pub max_wait: HumanDuration,
    /// How long results are kept.
    pub keep: HumanDuration,
}

impl Default for LaterConfig {
    fn default() -> Self {
        Self {
            max_body: ByteSize::mib(64),
            max_waiting: 1000,
            max_waiting_in_project: 10_000,
            max_kept_in_project: 20_000,
            max_kept_size: ByteSize::gib(10),
            at_once: 4,
            memory: ByteSize::mib(512),
            max_attempts: 10,
            longest_pause: HumanDuration::from_mins(5),
            takeover: HumanDuration::from_secs(30),
            max_wait: HumanDuration::from_hours(24),
            keep: HumanDuration::from_hours(24),
        }
    }
}
