//! The runtime with models that do as they are told.

mod batching;
mod fake;
mod faults;
mod fleet;
mod overload;
mod queue;
mod swap;
