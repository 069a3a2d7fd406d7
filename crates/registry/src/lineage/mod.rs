//! Where a version comes from: its run, parameters and datasets, and what the model says of itself.

pub(crate) mod http;
mod service;

pub use service::{Lineage, SourceRun};
