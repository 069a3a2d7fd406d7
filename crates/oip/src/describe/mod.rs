//! What a server says about itself and its models: as JSON, and as protobuf.
//!
//! The names of the fields are the protocol's, and Triton's where it extends the protocol.

mod config;
mod metadata;
mod repository;
mod statistics;

pub use config::{
    Batching, ConfigInput, ConfigOutput, DynamicBatching, InstanceGroup, ModelConfig,
    ModelParameter, QueuePolicy,
};
pub use metadata::{EXTENSIONS, Live, ModelMetadata, Ready, ServerMetadata, TensorMetadata};
pub use repository::{
    IndexRequest, ModelIndex, State, index_reply, read_index, read_load, read_unload,
    refuse_overrides,
};
pub use statistics::{
    BatchStatistics, Duration, InferStatistics, MemoryUsage, ModelStatistics, Statistics,
};
