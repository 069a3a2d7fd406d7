//! Aliases: names that point at a version and can be moved to another, each move on record.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod alias;
pub(crate) mod http;
mod service;
pub(crate) mod store;

pub(crate) use alias::{check_free, no_alias};
pub use service::Rolled;
