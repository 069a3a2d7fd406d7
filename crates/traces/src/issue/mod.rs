//! Issues: what goes wrong in the traces of an experiment, and whether somebody has seen to it.

pub mod http;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod issue;
mod search;
mod service;
pub(crate) mod store;
