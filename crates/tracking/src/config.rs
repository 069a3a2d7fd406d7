//! What can be set about tracking.

use falaj_base::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactConfig;
use crate::console::ConsoleConfig;
use crate::follow::FollowConfig;
use crate::metric::CompactionConfig;
use crate::purge::PurgeConfig;

/// Limits of the tracking API. Those of a single request follow MLflow's own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrackingConfig {
    /// The most metrics in one `log-batch`.
    pub max_batch_metrics: usize,
    /// The most parameters, and likewise tags, in one `log-batch`.
    pub max_batch_params: usize,
    /// The most metrics, parameters and tags together in one `log-batch`.
    pub max_batch_entities: usize,
    /// The longest value of a parameter, in characters; a longer one is cut, as in MLflow.
    pub max_param_value: usize,
    /// The longest value of a run's tag, in characters; a longer one is cut, as in MLflow.
    pub max_tag_value: usize,
    /// How much one page of a search holds: a page that would hold more ends earlier, and the next
    /// one goes on there.
    pub max_search_reply: ByteSize,
    /// The most experiments, runs, series or models in one request of an import, and the most
    /// parameters, tags or inputs of each.
    pub max_import_batch: usize,
    /// How much one request of an import reads to compare runs and models with another store; what
    /// is left is asked for again.
    pub max_import_check: ByteSize,
    /// How much memory the columns take that searches look at.
    pub search_memory: ByteSize,
    /// How logged points are gathered into chunks in the background.
    pub compaction: CompactionConfig,
    /// Limits of artifacts.
    pub artifact: ArtifactConfig,
    /// How what was deleted is deleted for good.
    pub purge: PurgeConfig,
    /// Limits of console logs.
    pub console: ConsoleConfig,
    /// Limits of following runs live.
    pub follow: FollowConfig,
}

impl Default for TrackingConfig {
    fn default() -> Self {
        Self {
            max_batch_metrics: 1000,
            max_batch_params: 100,
            max_batch_entities: 1000,
            max_param_value: 6000,
            max_tag_value: 8000,
            max_search_reply: ByteSize::mib(64),
            max_import_batch: 10_000,
            max_import_check: ByteSize::mib(64),
            search_memory: ByteSize::mib(256),
            compaction: CompactionConfig::default(),
            artifact: ArtifactConfig::default(),
            purge: PurgeConfig::default(),
            console: ConsoleConfig::default(),
            follow: FollowConfig::default(),
        }
    }
}
