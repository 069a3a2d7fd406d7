//! Training sets: features joined to moments, kept as they were then.
//!
//! ```text
//! ask     features and moments; names become versions, moments a file; a row that waits
//! make    histories joined to the moments, slice by slice, into a Parquet file
//! keep    the file under its digest, with a manifest of everything that it was made of
//! ```
//!
//! Must hold:
//! - A set that is made never changes. Its digest tells whether another is the same, made of the
//!   same.
//! - One that waits is made although servers come and go, or fails with the reason on record.
//! - Whoever asks for a set, and whoever reads it, may read each view that it is made of.
//!
//! Not here: which row answers (`offline`), where rows lie (`source`).

mod columns;
pub(crate) mod http;
mod id;
mod join;
mod make;
mod service;
mod set;
mod spec;
pub(crate) mod store;

use std::sync::Arc;

use tokio::sync::Notify;

pub use id::TrainingSetId;
pub(crate) use make::maker;
pub(crate) use set::resource;
pub use set::{State, TrainingSet};
pub(crate) use spec::Work;
pub use spec::{Chosen, Manifest, Register, Wanted, What};

/// Who waits for whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Something waits to be made.
    pub(crate) wake: Arc<Notify>,
    /// Something was made.
    pub(crate) made: Arc<Notify>,
}
