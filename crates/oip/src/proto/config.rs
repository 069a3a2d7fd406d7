//! A model's configuration: the parts of it that models here have.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelConfigRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ModelConfig>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelConfig {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub platform: String,
    #[prost(string, tag = "17")]
    pub backend: String,
    #[prost(string, tag = "25")]
    pub runtime: String,
    #[prost(message, optional, tag = "3")]
    pub version_policy: Option<ModelVersionPolicy>,
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub input: Vec<ModelInput>,
    #[prost(message, repeated, tag = "6")]
    pub output: Vec<ModelOutput>,
    #[prost(oneof = "SchedulingChoice", tags = "11")]
    pub scheduling_choice: Option<SchedulingChoice>,
    #[prost(message, repeated, tag = "7")]
    pub instance_group: Vec<ModelInstanceGroup>,
    #[prost(string, tag = "8")]
    pub default_model_filename: String,
    #[prost(btree_map = "string, message", tag = "14")]
    pub parameters: BTreeMap<String, ModelParameter>,
    #[prost(message, optional, tag = "19")]
    pub model_transaction_policy: Option<ModelTransactionPolicy>,
    #[prost(message, optional, tag = "24")]
    pub response_cache: Option<ModelResponseCache>,
}

/// Models here are batched dynamically or not at all.
#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum SchedulingChoice {
    #[prost(message, tag = "11")]
    DynamicBatching(ModelDynamicBatching),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum ConfigDataType {
    Invalid = 0,
    Bool = 1,
    Uint8 = 2,
    Uint16 = 3,
    Uint32 = 4,
    Uint64 = 5,
    Int8 = 6,
    Int16 = 7,
    Int32 = 8,
    Int64 = 9,
    Fp16 = 10,
    Fp32 = 11,
    Fp64 = 12,
    String = 13,
    Bf16 = 14,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelInput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "ConfigDataType", tag = "2")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "4")]
    pub dims: Vec<i64>,
    #[prost(bool, tag = "8")]
    pub optional: bool,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelOutput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "ConfigDataType", tag = "2")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
    #[prost(string, tag = "4")]
    pub label_filename: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum InstanceKind {
    Auto = 0,
    Gpu = 1,
    Cpu = 2,
    Model = 3,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelInstanceGroup {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    pub count: i32,
    #[prost(int32, repeated, tag = "3")]
    pub gpus: Vec<i32>,
    #[prost(enumeration = "InstanceKind", tag = "4")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelVersionPolicy {
    #[prost(oneof = "VersionPolicyChoice", tags = "1, 2, 3")]
    pub policy_choice: Option<VersionPolicyChoice>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum VersionPolicyChoice {
    #[prost(message, tag = "1")]
    Latest(LatestVersions),
    #[prost(message, tag = "2")]
    All(AllVersions),
    #[prost(message, tag = "3")]
    Specific(SpecificVersions),
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct LatestVersions {
    #[prost(uint32, tag = "1")]
    pub num_versions: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct AllVersions {}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct SpecificVersions {
    #[prost(int64, repeated, tag = "1")]
    pub versions: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelDynamicBatching {
    #[prost(int32, repeated, tag = "1")]
    pub preferred_batch_size: Vec<i32>,
    #[prost(uint64, tag = "2")]
    pub max_queue_delay_microseconds: u64,
    #[prost(bool, tag = "3")]
    pub preserve_ordering: bool,
    #[prost(uint64, tag = "4")]
    pub priority_levels: u64,
    #[prost(uint64, tag = "5")]
    pub default_priority_level: u64,
    #[prost(message, optional, tag = "6")]
    pub default_queue_policy: Option<ModelQueuePolicy>,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct ModelQueuePolicy {
    #[prost(enumeration = "TimeoutAction", tag = "1")]
    pub timeout_action: i32,
    #[prost(uint64, tag = "2")]
    pub default_timeout_microseconds: u64,
    #[prost(bool, tag = "3")]
    pub allow_timeout_override: bool,
    #[prost(uint32, tag = "4")]
    pub max_queue_size: u32,
}

/// What becomes of a request that waited too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum TimeoutAction {
    Reject = 0,
    Delay = 1,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelParameter {
    #[prost(string, tag = "1")]
    pub string_value: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct ModelTransactionPolicy {
    #[prost(bool, tag = "1")]
    pub decoupled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct ModelResponseCache {
    #[prost(bool, tag = "1")]
    pub enable: bool,
}
