//! Files of datasets: Parquet as it was sent, or CSV made into Parquet, each with what its values
//! are like.
//!
//! Must hold: a file is read through before it counts, so that nothing that cannot be read becomes
//! part of a version. Memory does not grow with its length.

mod convert;
mod csv;
pub(crate) mod http;
mod kind;
mod upload;

pub use upload::{FileFormat, Manner, Sent};
