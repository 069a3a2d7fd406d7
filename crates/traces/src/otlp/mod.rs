//! Spans as the OpenTelemetry protocol sends them: messages, protobuf and JSON, and the limits that
//! are kept while reading.
//!
//! Not here: what becomes of a span (`trace::ingest`).

mod convention;
mod fact;
pub mod grpc;
pub mod http;
mod json;
pub mod message;
mod read;
pub mod value;
pub mod walk;

pub(crate) use fact::span_type;
pub use fact::{Facts, Root};
pub use read::{Batch, Limits, Received, from_json, from_protobuf};
