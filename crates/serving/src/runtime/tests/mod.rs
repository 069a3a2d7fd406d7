//! The runtime with models that do as they are told.

mod batching;
mod company;
mod fake;
mod faults;
mod fleet;
mod onnxruntime;
mod overload;
mod queue;
mod spans;
mod storm;
mod swap;
