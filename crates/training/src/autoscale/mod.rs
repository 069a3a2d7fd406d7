//! Nodes that come and go: how many a pool should have, who is told, and which are there.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | what can be set |
//! | [`plan`] | what a pool should have now |
//! | [`node`] | which nodes are there, as the database knows it |
//! | [`burst`] | who may go to another pool |
//! | [`provider`] | telling whoever brings nodes |
//! | [`service`] | nodes that say that they are there, and operators who drain some |
//!
//! Must hold:
//! - A pool's nodes are those that its configuration names; autoscaling says which of them should be
//!   there. So what could ever run is known before any of them is.
//! - A node that has jobs is never taken away: it is drained, and goes when it is empty.
//! - What was asked for is in the database before anybody is told, and is told until it was taken.
//!
//! Not here: bringing up machines, which is the provider's; when a pass acts on it (`live::scale`).

pub mod burst;
pub mod config;
pub(crate) mod http;
pub(crate) mod node;
pub mod plan;
pub(crate) mod provider;
mod service;
pub(crate) mod store;

pub use node::NodeState;
pub use service::{AutoscaleShown, NodeSet};
