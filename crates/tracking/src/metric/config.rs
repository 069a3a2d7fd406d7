//! What can be set about how points are kept.

use std::time::Duration;

use falaj_base::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a run's logged points are gathered into chunks, which are smaller and faster to read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompactionConfig {
    /// Gather once this many requests have logged to a run; by default 32 on SQLite, where fewer pages
    /// are then written with every commit, and 256 on PostgreSQL, where every gathering is a transaction.
    #[schemars(range(min = 1, max = 10000))]
    pub rows: Option<usize>,
    /// Gather once this many points are waiting, if they are at least 64 for each metric.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub points: usize,
    /// How many runs are watched at once; with more, some wait for the next sweep.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub runs: usize,
    /// How often all runs are looked through for points that nobody counted, such as those
    /// logged before a restart.
    pub sweep_every: HumanDuration,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            rows: None,
            points: 2048,
            runs: 100_000,
            sweep_every: HumanDuration::new(Duration::from_mins(10)),
        }
    }
}
