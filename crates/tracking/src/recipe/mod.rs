//! How a run came to be, as far as it is on record: code, environment, data, command, seed, host;
//! and what differs between two runs.
//!
//! It is read from what MLflow's clients leave (`mlflow.source.*` and `mlflow.git.*` tags, the
//! environment files of models, datasets, parameters) and from what `falaj run exec` leaves
//! (`falaj.*` tags, and files below `falaj/` among the run's artifacts).
//!
//! Must hold: what is not on record is said to be missing, never guessed.

mod diff;
mod environment;
mod http;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod recipe;
mod service;

pub use diff::{Difference, RunDiff};
pub(crate) use http::routes;
pub use recipe::{Code, EnvironmentFile, Recipe, UsedDataset};
