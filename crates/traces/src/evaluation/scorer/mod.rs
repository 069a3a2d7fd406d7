//! Scorers: judges of traces, as clients describe them, in versions. Nothing here runs one.

pub mod http;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod scorer;
mod service;
pub(crate) mod store;
