//! What is known about features beside their values: how fresh they are, what they are like, what
//! they are made of and who uses them, and whether both stores say the same.
//!
//! | module | holds |
//! |---|---|
//! | [`freshness`] | the newest event of a view, and an incident while that is too old |
//! | [`profile`] | statistics of a view's columns, counted when asked for |
//! | [`lineage`] | up to sources; down to services, training sets, datasets, runs and models |
//! | [`skew`] | the latest values beside what history says of the same moment |
//!
//! Must hold: an incident begins once and ends once, whichever server notices. What a caller may not
//! read is left out of what is known as well.

pub mod freshness;
pub(crate) mod http;
pub mod lineage;
pub mod metrics;
pub mod profile;
pub mod skew;
pub(crate) mod store;

pub use lineage::{LoggedRun, RunsOfDatasets};
