//! What can be set about deleting for good.

use falaj_base::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How what was purged is cleared away, and how retention is applied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PurgeConfig {
    /// How long a request that purges goes on clearing away before it leaves the rest to the
    /// background.
    pub patience: HumanDuration,
    /// How often the retention of all projects is applied.
    pub retention_every: HumanDuration,
    /// The most runs, models and experiments that one request to collect garbage purges.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_gc: usize,
    /// The most legal holds of a project.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_holds: usize,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self {
            patience: HumanDuration::from_secs(5),
            retention_every: HumanDuration::from_mins(10),
            max_gc: 200,
            max_holds: 1000,
        }
    }
}
