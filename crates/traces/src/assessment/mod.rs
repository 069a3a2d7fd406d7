//! Assessments: what people, code and judges think of a trace, and what they had expected.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod assessment;
pub mod http;
mod service;
pub(crate) mod store;
pub(crate) mod wire;

pub use assessment::{Assessment, Change, Failure, Said, Source};
