//! Queues: tenant → team → queue, each with a quota of its own, what it may borrow and what it lends.
//!
//! Must hold:
//! - A queue belongs to a tenant and never moves in the tree: that would move what its jobs are
//!   charged to.
//! - Every project has a queue without a quota of its own, which is not kept anywhere: a job that
//!   names none is in that one.
//! - What all queues of a tenant have together is set by the platform's own staff, under the name
//!   [`TENANT`].

pub(crate) mod http;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod queue;
mod service;
pub(crate) mod store;
pub(crate) mod tree;

pub use queue::{Held, Limits, Queue, QueueSet, TENANT};
