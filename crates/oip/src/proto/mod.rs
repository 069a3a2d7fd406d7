//! The messages of the protobuf package `inference`, as Triton numbers their fields.
//!
//! Written by hand, so that nothing is generated while building; a test compares them with bytes
//! that the stock client made. Tensors are shared with the message they came in, not copied.

mod config;
mod infer;
mod memory;
mod metadata;
mod raw;
mod repository;
mod settings;
mod statistics;

pub use config::*;
pub use infer::*;
pub use memory::*;
pub use metadata::*;
pub use raw::Raw;
pub use repository::*;
pub use settings::*;
pub use statistics::*;

/// The service's full name, as it stands in a path.
pub const SERVICE: &str = "inference.GRPCInferenceService";
