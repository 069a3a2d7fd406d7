//! What can be set about datasets.

use falaj_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of datasets there may be, and how long they are kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DatasetsConfig {
    /// Datasets of a project at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_datasets: usize,
    /// Versions of a dataset at most.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_versions: usize,
    /// Files of a version at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_files: usize,
    /// Columns of a version at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_columns: usize,
    /// Tags of a dataset at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tags: usize,
    /// Bytes of one row of CSV at most.
    pub max_csv_row: ByteSize,
    /// How long a file waits for a version that has it; then it is removed.
    pub file_grace: HumanDuration,
    /// How long a deleted dataset can be restored; then its rows are removed.
    pub deleted_keep: HumanDuration,
    /// Memory of one comparison of versions; what takes more goes to a file in the data folder.
    pub diff_memory: ByteSize,
    /// Bytes of such files at most, for each comparison.
    pub diff_spill: ByteSize,
    /// Comparisons that are made at a time, and as many again that wait.
    #[schemars(range(min = 1, max = 64))]
    pub diffs_at_once: usize,
    /// How long a request for a comparison waits until it is there.
    pub diff_wait: HumanDuration,
    /// How long a comparison may take.
    pub diff_time: HumanDuration,
}

impl Default for DatasetsConfig {
    fn default() -> Self {
        Self {
            max_datasets: 10_000,
            max_versions: 100_000,
            max_files: 10_000,
            max_columns: 2000,
            max_tags: 1000,
            max_csv_row: ByteSize::mib(1),
            file_grace: HumanDuration::from_days(1),
            deleted_keep: HumanDuration::from_days(30),
            diff_memory: ByteSize::mib(256),
            diff_spill: ByteSize::gib(16),
            diffs_at_once: 2,
            diff_wait: HumanDuration::from_secs(20),
            diff_time: HumanDuration::from_hours(1),
        }
    }
}
