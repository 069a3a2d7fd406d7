//! How a model runs, in the words of Triton's model configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_inference::{DataType, Metadata, ValueInfo};
use schemars::JsonSchema;
use serde::Serialize;

use crate::proto;

/// A model's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelConfig {
    pub name: String,
    pub platform: String,
    pub backend: String,
    /// The most rows of one run; 0 if requests are never put together.
    pub max_batch_size: i32,
    pub input: Vec<ConfigInput>,
    pub output: Vec<ConfigOutput>,
    pub instance_group: Vec<InstanceGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_batching: Option<DynamicBatching>,
    pub parameters: BTreeMap<String, ModelParameter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigInput {
    pub name: String,
    /// `TYPE_FP32` and so on.
    pub data_type: String,
    /// Without the first dimension if `max_batch_size` is not 0.
    pub dims: Vec<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigOutput {
    pub name: String,
    pub data_type: String,
    pub dims: Vec<i64>,
}

/// How many of it run side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstanceGroup {
    pub name: String,
    /// `KIND_CPU`.
    pub kind: String,
    pub count: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DynamicBatching {
    pub preferred_batch_size: Vec<i32>,
    pub max_queue_delay_microseconds: u64,
    pub priority_levels: u64,
    pub default_priority_level: u64,
    pub default_queue_policy: QueuePolicy,
}

/// What becomes of requests that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueuePolicy {
    pub default_timeout_microseconds: u64,
    pub allow_timeout_override: bool,
    pub max_queue_size: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelParameter {
    pub string_value: String,
}

/// What a configuration is made from, beside the model's own inputs and outputs.
#[derive(Clone, Debug, Default)]
pub struct Batching {
    pub instances: usize,
    /// 1 means none.
    pub max_rows: usize,
    pub delay: Duration,
    pub preferred: Vec<usize>,
    pub max_queue: usize,
    pub timeout: Duration,
    pub priority_levels: u64,
    pub default_priority: u64,
}

impl ModelConfig {
    #[must_use]
    pub fn of(
        name: &str,
        platform: &str,
        backend: &str,
        metadata: &Metadata,
        runs: &Batching,
    ) -> Self {
        let batched = runs.max_rows > 1;
        let input = metadata.inputs.iter().map(|value| ConfigInput {
            name: value.name.clone(),
            data_type: type_name(value.data_type).to_owned(),
            dims: dims(value, batched),
        });
        let output = metadata.outputs.iter().map(|value| ConfigOutput {
            name: value.name.clone(),
            data_type: type_name(value.data_type).to_owned(),
            dims: dims(value, batched),
        });
        Self {
            name: name.to_owned(),
            platform: platform.to_owned(),
            backend: backend.to_owned(),
            max_batch_size: if batched { small(runs.max_rows) } else { 0 },
            input: input.collect(),
            output: output.collect(),
            instance_group: vec![InstanceGroup {
                name: format!("{name}_0"),
                kind: "KIND_CPU".to_owned(),
                count: small(runs.instances),
            }],
            dynamic_batching: batched.then(|| DynamicBatching {
                preferred_batch_size: runs.preferred.iter().map(|&rows| small(rows)).collect(),
                max_queue_delay_microseconds: micros(runs.delay),
                priority_levels: runs.priority_levels,
                default_priority_level: runs.default_priority,
                default_queue_policy: QueuePolicy {
                    default_timeout_microseconds: micros(runs.timeout),
                    allow_timeout_override: true,
                    max_queue_size: u32::try_from(runs.max_queue).unwrap_or(u32::MAX),
                },
            }),
            parameters: BTreeMap::new(),
        }
    }
}

fn dims(value: &ValueInfo, batched: bool) -> Vec<i64> {
    let shape = value.shape.as_deref().unwrap_or(&[-1]);
    match shape.split_first() {
        Some((_, rest)) if batched => rest.to_vec(),
        _ => shape.to_vec(),
    }
}

fn small(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The name of a type in a model configuration, and its number.
fn config_type(kind: DataType) -> (&'static str, proto::ConfigDataType) {
    use proto::ConfigDataType as Config;
    match kind {
        DataType::Bool => ("TYPE_BOOL", Config::Bool),
        DataType::U8 => ("TYPE_UINT8", Config::Uint8),
        DataType::U16 => ("TYPE_UINT16", Config::Uint16),
        DataType::U32 => ("TYPE_UINT32", Config::Uint32),
        DataType::U64 => ("TYPE_UINT64", Config::Uint64),
        DataType::I8 => ("TYPE_INT8", Config::Int8),
        DataType::I16 => ("TYPE_INT16", Config::Int16),
        DataType::I32 => ("TYPE_INT32", Config::Int32),
        DataType::I64 => ("TYPE_INT64", Config::Int64),
        DataType::F16 => ("TYPE_FP16", Config::Fp16),
        DataType::Bf16 => ("TYPE_BF16", Config::Bf16),
        DataType::F32 => ("TYPE_FP32", Config::Fp32),
        DataType::F64 => ("TYPE_FP64", Config::Fp64),
        DataType::Bytes => ("TYPE_STRING", Config::String),
    }
}

fn type_name(kind: DataType) -> &'static str {
    config_type(kind).0
}

fn type_number(name: &str) -> i32 {
    let known =
        DataType::ALL.iter().map(|&kind| config_type(kind)).find(|(known, _)| *known == name);
    known.map_or(proto::ConfigDataType::Invalid, |(_, number)| number) as i32
}

impl From<ModelConfig> for proto::ModelConfig {
    fn from(config: ModelConfig) -> Self {
        let input = config.input.into_iter().map(|input| proto::ModelInput {
            data_type: type_number(&input.data_type),
            name: input.name,
            dims: input.dims,
            optional: false,
        });
        let output = config.output.into_iter().map(|output| proto::ModelOutput {
            data_type: type_number(&output.data_type),
            name: output.name,
            dims: output.dims,
            label_filename: String::new(),
        });
        let group = config.instance_group.into_iter().map(|group| proto::ModelInstanceGroup {
            name: group.name,
            count: group.count,
            gpus: Vec::new(),
            kind: proto::InstanceKind::Cpu as i32,
        });
        let batching = config.dynamic_batching.map(|batching| {
            let policy = batching.default_queue_policy;
            proto::SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching {
                preferred_batch_size: batching.preferred_batch_size,
                max_queue_delay_microseconds: batching.max_queue_delay_microseconds,
                preserve_ordering: false,
                priority_levels: batching.priority_levels,
                default_priority_level: batching.default_priority_level,
                default_queue_policy: Some(proto::ModelQueuePolicy {
                    timeout_action: proto::TimeoutAction::Reject as i32,
                    default_timeout_microseconds: policy.default_timeout_microseconds,
                    allow_timeout_override: policy.allow_timeout_override,
                    max_queue_size: policy.max_queue_size,
                }),
            })
        });
        let parameters = config.parameters.into_iter().map(|(name, parameter)| {
            (name, proto::ModelParameter { string_value: parameter.string_value })
        });
        Self {
            name: config.name,
            platform: config.platform,
            backend: config.backend,
            max_batch_size: config.max_batch_size,
            input: input.collect(),
            output: output.collect(),
            instance_group: group.collect(),
            scheduling_choice: batching,
            parameters: parameters.collect(),
            ..Self::default()
        }
    }
}
