//! Which models there are, and loading and unloading them.

use std::collections::BTreeMap;

use bytes::Bytes;

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelRepositoryParameter {
    #[prost(oneof = "RepositoryParameterChoice", tags = "1, 2, 3, 4")]
    pub parameter_choice: Option<RepositoryParameterChoice>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum RepositoryParameterChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bytes = "bytes", tag = "4")]
    Bytes(Bytes),
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    /// Only those that are ready.
    #[prost(bool, tag = "2")]
    pub ready: bool,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<ModelIndex>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ModelIndex {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "3")]
    pub state: String,
    #[prost(string, tag = "4")]
    pub reason: String,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RepositoryModelLoadRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    #[prost(string, tag = "2")]
    pub model_name: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: BTreeMap<String, ModelRepositoryParameter>,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct RepositoryModelLoadResponse {}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RepositoryModelUnloadRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    #[prost(string, tag = "2")]
    pub model_name: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: BTreeMap<String, ModelRepositoryParameter>,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct RepositoryModelUnloadResponse {}
