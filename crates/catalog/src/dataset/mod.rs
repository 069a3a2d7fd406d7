//! Datasets: what they are called, who answers for them, how long they are kept.
//!
//! Must hold: one name is one dataset of its project, until it is deleted; one that was deleted can
//! be restored for a while, and what of it is kept is removed afterwards, or at once if asked for.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod dataset;
pub(crate) mod http;
mod retention;
mod service;
pub(crate) mod store;

pub use dataset::{Dataset, DatasetId, Described, Keep, NewDataset};
pub(crate) use dataset::{described, resource};
pub(crate) use retention::{give_back, sweeper};
pub(crate) use service::add;
