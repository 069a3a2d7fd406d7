//! Erasing the rows of one entity, everywhere that we keep them: online at once, from the log of
//! pushes, from the files that it is gathered into, from training sets and the datasets that those
//! became, from what was put aside of streams, and from statistics.
//!
//! Must hold:
//! - Stop anywhere, run again, same result: an erasure that was asked for is done although servers
//!   come and go, in every online store there is.
//! - Rows that became known later are not touched.
//! - What may still bring erased rows back (a page of the log or a file that was being read) is
//!   followed by erasing them again.
//!
//! - What is known by its digest never changes: a training set or a version of a dataset that had the
//!   entity cannot be read any more, and another follows that has the other rows.
//! - What does not tell whose it is counts as the entity's.
//!
//! Not here: rows of sources that are not ours, which are named, and backups.

mod apply;
mod erasure;
pub(crate) mod http;
mod quarantined;
mod run;
mod service;
mod sets;
pub(crate) mod store;
mod target;

pub(crate) use apply::Erased;
pub use erasure::{Erasure, ErasureId, ErasureState};
pub(crate) use run::worker;
