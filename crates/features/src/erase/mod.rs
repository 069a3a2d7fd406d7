//! Erasing the rows of one entity: online at once, from the log of pushes, and from the files that it
//! is gathered into, by writing those anew.
//!
//! Must hold:
//! - Stop anywhere, run again, same result: an erasure that was asked for is done although servers
//!   come and go, in every online store there is.
//! - Rows that became known later are not touched.
//! - What may still bring erased rows back (a page of the log or a file that was being read) is
//!   followed by erasing them again.
//!
//! Not here: rows of sources that are not ours, backups, and training sets that were made; those that
//! have the entity are named.

mod apply;
mod erasure;
pub(crate) mod http;
mod run;
mod service;
mod sets;
pub(crate) mod store;
mod target;

pub use erasure::{Erasure, ErasureId, ErasureState};
pub(crate) use run::worker;
