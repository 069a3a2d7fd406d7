//! Models in, tensors through, tensors out: inference without a network, a database or a runtime.
//!
//! | module | holds |
//! |---|---|
//! | [`tensor`] | shapes and elements, with the names of the Open Inference Protocol |
//! | [`onnx`] | reading a model that a stranger wrote, within limits |
//! | [`engine`] | the seam: engines load models, sessions run them |
//! | [`engines`] | the engines of this process, and which of them suits a model |
//! | [`cancel`] | ending a run from another thread |
//! | [`kernels`] | our own engine: trees, linear models, encoders, small networks |
//! | [`runtime`] | ONNX Runtime, if its library is found, for everything else |
//! | [`fallback`] | neural networks without that library: slower, and less of them |
//! | [`golden`] | does it answer as it did when it was registered, and the same in any batch? |
//!
//! A session is synchronous and belongs to one thread at a time. Whoever serves decides on threads,
//! queues and deadlines.

pub mod cancel;
pub mod engine;
pub mod engines;
pub mod fallback;
pub mod golden;
pub mod kernels;
pub mod onnx;
pub mod protobuf;
pub mod runtime;
pub mod tensor;

pub use cancel::Cancel;
pub use engine::{Engine, Session, run, run_until};
pub use engines::{Chosen, Engines, Listed};
pub use onnx::{Labels, Limits, Metadata, ModelFile, ValueInfo};
pub use tensor::{Data, DataType, Tensor};
