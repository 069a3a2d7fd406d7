//! How often and how long models ran.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::proto;

/// The statistics of some models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Statistics {
    pub model_stats: Vec<ModelStatistics>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelStatistics {
    pub name: String,
    pub version: String,
    /// Milliseconds since 1970; 0 before the first.
    pub last_inference: u64,
    /// Rows answered.
    pub inference_count: u64,
    /// Runs of the model: several rows may share one.
    pub execution_count: u64,
    pub inference_stats: InferStatistics,
    /// For replies that come in parts; models here answer once.
    pub response_stats: BTreeMap<String, Duration>,
    pub batch_stats: Vec<BatchStatistics>,
    pub memory_usage: Vec<MemoryUsage>,
}

/// How often, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Duration {
    pub count: u64,
    pub ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InferStatistics {
    pub success: Duration,
    pub fail: Duration,
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
    pub cache_hit: Duration,
    pub cache_miss: Duration,
}

/// The runs with one number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BatchStatistics {
    pub batch_size: u64,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemoryUsage {
    /// `CPU`.
    #[serde(rename = "type")]
    pub kind: String,
    pub id: i64,
    pub byte_size: u64,
}

impl From<Duration> for proto::StatisticDuration {
    fn from(duration: Duration) -> Self {
        Self { count: duration.count, ns: duration.ns }
    }
}

impl From<InferStatistics> for proto::InferStatistics {
    fn from(statistics: InferStatistics) -> Self {
        Self {
            success: Some(statistics.success.into()),
            fail: Some(statistics.fail.into()),
            queue: Some(statistics.queue.into()),
            compute_input: Some(statistics.compute_input.into()),
            compute_infer: Some(statistics.compute_infer.into()),
            compute_output: Some(statistics.compute_output.into()),
            cache_hit: Some(statistics.cache_hit.into()),
            cache_miss: Some(statistics.cache_miss.into()),
        }
    }
}

impl From<BatchStatistics> for proto::InferBatchStatistics {
    fn from(statistics: BatchStatistics) -> Self {
        Self {
            batch_size: statistics.batch_size,
            compute_input: Some(statistics.compute_input.into()),
            compute_infer: Some(statistics.compute_infer.into()),
            compute_output: Some(statistics.compute_output.into()),
        }
    }
}

impl From<ModelStatistics> for proto::ModelStatistics {
    fn from(model: ModelStatistics) -> Self {
        let memory = model.memory_usage.into_iter().map(|memory| proto::MemoryUsage {
            r#type: memory.kind,
            id: memory.id,
            byte_size: memory.byte_size,
        });
        Self {
            name: model.name,
            version: model.version,
            last_inference: model.last_inference,
            inference_count: model.inference_count,
            execution_count: model.execution_count,
            inference_stats: Some(model.inference_stats.into()),
            batch_stats: model.batch_stats.into_iter().map(Into::into).collect(),
            memory_usage: memory.collect(),
            response_stats: BTreeMap::new(),
        }
    }
}

impl From<Statistics> for proto::ModelStatisticsResponse {
    fn from(statistics: Statistics) -> Self {
        Self { model_stats: statistics.model_stats.into_iter().map(Into::into).collect() }
    }
}
