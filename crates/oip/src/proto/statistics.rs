//! How often and how long models ran.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelStatisticsRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelStatistics {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    /// Rows answered.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    /// Runs of the model: several rows may share one.
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub inference_stats: Option<InferStatistics>,
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: Vec<InferBatchStatistics>,
    #[prost(message, repeated, tag = "8")]
    pub memory_usage: Vec<MemoryUsage>,
    #[prost(btree_map = "string, message", tag = "9")]
    pub response_stats: BTreeMap<String, InferResponseStatistics>,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct StatisticDuration {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct InferStatistics {
    #[prost(message, optional, tag = "1")]
    pub success: Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub fail: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub queue: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_input: Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub compute_output: Option<StatisticDuration>,
    #[prost(message, optional, tag = "7")]
    pub cache_hit: Option<StatisticDuration>,
    #[prost(message, optional, tag = "8")]
    pub cache_miss: Option<StatisticDuration>,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct InferResponseStatistics {
    #[prost(message, optional, tag = "1")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub compute_output: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub success: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub fail: Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub empty_response: Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub cancel: Option<StatisticDuration>,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct InferBatchStatistics {
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub compute_input: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_output: Option<StatisticDuration>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct MemoryUsage {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(uint64, tag = "3")]
    pub byte_size: u64,
}
