//! What can be set about tracking.

use falaj_base::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::CompactionConfig;

use crate::artifact::ArtifactConfig;

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
    /// The most experiments, runs, series or models in one request of an import, and the most
    /// parameters, tags or inputs of each.
    pub max_import_batch: usize,
    /// How much memory the columns take that searches look at.
    pub search_memory: ByteSize,
    /// How logged points are gathered into chunks in the background.
    pub compaction: CompactionConfig,
    /// Limits of artifacts.
    pub artifact: ArtifactConfig,
}

impl Default for TrackingConfig {
    fn default() -> Self {
        Self {
            max_batch_metrics: 1000,
            max_batch_params: 100,
            max_batch_entities: 1000,
            max_param_value: 6000,
            max_tag_value: 8000,
            max_import_batch: 10_000,
            search_memory: ByteSize::mib(256),
            compaction: CompactionConfig::default(),
            artifact: ArtifactConfig::default(),
        }
    }
}
