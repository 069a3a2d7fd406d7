//! Traces: what happened during one request to a model or an agent.

mod delete;
pub mod http;
mod id;
mod ingest;
mod link;
mod read;
mod service;
mod start;
pub(crate) mod store;
mod sweep;
mod tags;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod trace;
pub(crate) mod v2;
pub(crate) mod wire;

pub use delete::Which;
pub use id::TraceId;
pub use ingest::Logged;
pub(crate) use link::LinkKind;
pub(crate) use service::Assessed;
pub(crate) use sweep::sweeper;
pub(crate) use trace::{NAME_TAG, SESSION, SOURCE_RUN, TOKENS};
pub use trace::{State, Trace};
