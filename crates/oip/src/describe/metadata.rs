//! Health, the server, and what a model takes and gives.

use falaj_inference::{Metadata, ValueInfo};
use schemars::JsonSchema;
use serde::Serialize;

use crate::proto;

/// The extensions that this crate speaks.
pub const EXTENSIONS: &[&str] = &[
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
];

/// Whether the server is up. A client of `KServe` reads the body, others only the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Live {
    pub live: bool,
}

/// Whether the server, or a model, takes requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Ready {
    /// The model, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub ready: bool,
}

/// The server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerMetadata {
    pub name: String,
    pub version: String,
    /// The parts of the protocol beyond its core that the server speaks.
    pub extensions: Vec<String>,
}

impl From<ServerMetadata> for proto::ServerMetadataResponse {
    fn from(server: ServerMetadata) -> Self {
        Self { name: server.name, version: server.version, extensions: server.extensions }
    }
}

/// What a model takes and gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelMetadata {
    pub name: String,
    pub versions: Vec<String>,
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

/// An input or an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TensorMetadata {
    pub name: String,
    pub datatype: String,
    /// The dimensions, -1 for one that varies.
    pub shape: Vec<i64>,
}

impl ModelMetadata {
    #[must_use]
    pub fn of(name: &str, versions: Vec<String>, platform: &str, metadata: &Metadata) -> Self {
        Self {
            name: name.to_owned(),
            versions,
            platform: platform.to_owned(),
            inputs: metadata.inputs.iter().map(TensorMetadata::of).collect(),
            outputs: metadata.outputs.iter().map(TensorMetadata::of).collect(),
        }
    }
}

impl TensorMetadata {
    fn of(value: &ValueInfo) -> Self {
        Self {
            name: value.name.clone(),
            datatype: value.data_type.name().to_owned(),
            // The protocol cannot say that even the number of dimensions varies.
            shape: value.shape.clone().unwrap_or_else(|| vec![-1]),
        }
    }
}

impl From<TensorMetadata> for proto::TensorMetadata {
    fn from(tensor: TensorMetadata) -> Self {
        Self { name: tensor.name, datatype: tensor.datatype, shape: tensor.shape }
    }
}

impl From<ModelMetadata> for proto::ModelMetadataResponse {
    fn from(model: ModelMetadata) -> Self {
        Self {
            name: model.name,
            versions: model.versions,
            platform: model.platform,
            inputs: model.inputs.into_iter().map(Into::into).collect(),
            outputs: model.outputs.into_iter().map(Into::into).collect(),
        }
    }
}
