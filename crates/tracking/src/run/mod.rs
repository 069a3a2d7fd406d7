//! Runs: one try, with its parameters, metrics, tags and results.

pub mod http;
mod id;
pub(crate) mod load;
mod log;
mod naming;
mod open;
mod planned;
mod repeat;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod run;
mod service;
pub(crate) mod store;
pub(crate) mod touch;
pub(crate) mod wire;

pub use id::RunId;
pub use load::Projection;
pub use log::{Batch, LoggedMetric};
pub(crate) use naming::random as random_name;
pub use open::{OpenRun, open_with_tag};
pub use planned::{Made, PlannedRun};
pub(crate) use repeat::{NEIGHBOURS_SCHEMA, Repeats, SCHEMA as CREATION_SCHEMA, forgetter, teller};
pub use run::{Run, RunData, RunInfo, RunStatus};
pub use service::NewRun;
pub(crate) use service::{check_active, require_active_run};
