//! Jobs: what was asked for, how far it has come, and every start of it.
//!
//! Must hold:
//! - A job that is no array is an array of one task. What is scheduled is a task; a task that never
//!   started has no row of its own, so an array is one row until it runs.
//! - States follow each other as [`State::may_become`] says, and what is over stays over.
//! - A change of state, its event and its audit entry are one transaction.

mod attempt;
mod definition;
pub(crate) mod delete;
pub(crate) mod http;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod job;
mod sample;
mod service;
mod spec;
mod state;
pub(crate) mod store;

pub use attempt::{Attempt, Decided, PlacedAt};
pub use definition::{
    Checkpoint, Definition, Framework, MigSlice, Resources, SpotUse, TopologyAsk, TopologyLevel,
};
pub(crate) use job::resource;
pub use job::{Job, Owner};
pub(crate) use spec::{amount, explain, mig_sevenths, millis, to_spec};
pub use state::{State, Tally};
