//! The output of jobs: read from the executor while a start is there, and from the object store once
//! it has ended.
//!
//! Must hold: an offset means the same bytes in both, so whoever follows notices nothing of the change.

pub(crate) mod archive;
pub(crate) mod http;
mod service;

pub use service::Piece;
