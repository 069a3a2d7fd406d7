//! Settings of traces and logs.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct TraceSettingRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: BTreeMap<String, TraceSettingValue>,
    #[prost(string, tag = "2")]
    pub model_name: String,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct TraceSettingResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: BTreeMap<String, TraceSettingValue>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct TraceSettingValue {
    #[prost(string, repeated, tag = "1")]
    pub value: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LogSettingsRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: BTreeMap<String, LogSettingValue>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LogSettingsResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: BTreeMap<String, LogSettingValue>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LogSettingValue {
    #[prost(oneof = "LogSettingChoice", tags = "1, 2, 3")]
    pub parameter_choice: Option<LogSettingChoice>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum LogSettingChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(uint32, tag = "2")]
    Uint32(u32),
    #[prost(string, tag = "3")]
    String(String),
}
