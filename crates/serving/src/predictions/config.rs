//! What can be set about keeping predictions.

use falaj_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How predictions are gathered into files, and how long those are kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PredictionsConfig {
    /// How many predictions may wait for the writer to come for them; more are not kept, and counted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_waiting: usize,
    /// How much memory predictions may take until they are in files; more are not kept.
    pub max_memory: ByteSize,
    /// Rows of a file at most.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub file_rows: usize,
    /// Bytes of predictions that go into a file at most, give or take what is laid by at a time: a thousand of
    /// them, or a mebibyte.
    pub file_bytes: ByteSize,
    /// How long a prediction waits for others before it is written.
    pub file_age: HumanDuration,
    /// How many files are written at a time.
    #[schemars(range(min = 1, max = 64))]
    pub writers: usize,
    /// How long files and outcomes are kept where an endpoint says nothing else.
    pub keep: HumanDuration,
}

impl Default for PredictionsConfig {
    fn default() -> Self {
        Self {
            max_waiting: 10_000,
            max_memory: ByteSize::mib(128),
            file_rows: 50_000,
            file_bytes: ByteSize::mib(16),
            file_age: HumanDuration::from_mins(1),
            writers: 2,
            keep: HumanDuration::from_days(30),
        }
    }
}
