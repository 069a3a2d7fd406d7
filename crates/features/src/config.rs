//! What can be set about features.

use std::path::PathBuf;

use falaj_base::{ByteSize, HumanDuration, Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::online::OnlineConfig;

/// How much of features there may be, and where their rows may lie.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeaturesConfig {
    /// Folders of this server's disk that sources may read below.
    pub source_roots: Vec<SourceRoot>,
    /// Definitions of a project at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_definitions: usize,
    /// Definitions in one apply at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_apply: usize,
    /// Fields of a view, and features of a service or a training set, at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_fields: usize,
    /// Join keys of an entity at most.
    #[schemars(range(min = 1, max = 64))]
    pub max_keys: usize,
    /// Rows of one push at most.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_push_rows: usize,
    /// Bytes of one push at most, as it is kept.
    pub max_push_size: ByteSize,
    /// Bytes of pushed rows that are gathered into one file of history.
    pub segment_size: ByteSize,
    /// How long pushed rows wait for others before they are gathered into a file.
    pub segment_age: HumanDuration,
    /// How long pushed rows stay in the log after they were gathered, for whoever reads the log.
    pub log_keep: HumanDuration,
    /// The latest values, and how they are read.
    pub online: OnlineConfig,
    /// Files of one source at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_source_files: usize,
    /// Bytes of the moments of one training set at most, as they are kept.
    pub max_moments_size: ByteSize,
    /// Rows of moments that are joined at a time: memory grows with it, and so does speed.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub rows_at_once: usize,
    /// Memory for the moments that are joined at a time, and as much again for what answers them.
    pub memory: ByteSize,
    /// Training sets that wait to be made, of one project, at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_waiting: usize,
    /// How long a request for a training set waits until it is there.
    pub wait: HumanDuration,
    /// How long a training set may take to be made.
    pub max_time: HumanDuration,
}

/// A folder of this server's disk that the sources of one tenant may read below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceRoot {
    /// What the paths of sources begin with: `lake` for `lake/drivers/*.parquet`.
    pub name: Name,
    /// The folder.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The tenant whose sources may read there.
    pub tenant: Name,
    /// Its only project that may; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    /// The residency zone that the folder lies in; that of the project if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
}

impl Default for FeaturesConfig {
    fn default() -> Self {
        Self {
            source_roots: Vec::new(),
            max_definitions: 10_000,
            max_apply: 1000,
            max_fields: 1000,
            max_keys: 16,
            max_push_rows: 100_000,
            max_push_size: ByteSize::mib(16),
            segment_size: ByteSize::mib(64),
            segment_age: HumanDuration::from_mins(10),
            log_keep: HumanDuration::from_days(1),
            online: OnlineConfig::default(),
            max_source_files: 10_000,
            max_moments_size: ByteSize::gib(4),
            rows_at_once: 2_000_000,
            memory: ByteSize::gib(1),
            max_waiting: 100,
            wait: HumanDuration::from_secs(10),
            max_time: HumanDuration::from_hours(6),
        }
    }
}
