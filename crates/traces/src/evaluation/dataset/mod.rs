//! Evaluation datasets: examples of what a model is asked, with what is expected of its answers.
//!
//! Must hold:
//! - A dataset belongs to a project and is authorised there; experiments only point to it. Which
//!   of them a caller is told of depends on whether they may see those.
//! - There is one record for each input. Sent again, it is completed, not doubled.
//! - Every change of a dataset holds its lock.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod dataset;
pub mod http;
mod record;
mod records;
mod search;
mod service;
mod shape;
pub(crate) mod store;

pub use dataset::DatasetId;
