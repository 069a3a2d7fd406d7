//! Experiments: named collections of runs.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod experiment;
pub mod http;
mod service;
pub(crate) mod store;

pub use experiment::{Experiment, ExperimentId, Stage, ViewType};
pub use service::{NewExperiment, require_active};
pub(crate) use service::{check_active, require_active_for};
pub use store::forget_project;
