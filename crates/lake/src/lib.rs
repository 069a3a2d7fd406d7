//! Tables that others keep: Delta and Iceberg, read as data.
//!
//! | module | holds |
//! |---|---|
//! | [`place`] | where files lie: a folder, or a bucket of an S3 server |
//! | [`delta`] | Delta: the log, checkpoints, deletion vectors |
//! | [`iceberg`] | Iceberg: metadata, manifests, deletes of both kinds |
//! | [`snapshot`] | which files make up a table at a moment, and what its columns are called |
//! | [`rows`] | the rows of one of those files, as the table has them |
//!
//! Must hold:
//! - A table is a stranger's. What it says is bounded before it is believed, and refused by the name
//!   of its file; nothing in it leads out of the folder of the table.
//! - What a table says about rows is applied or refused: a delete, a column's other name, a part of
//!   the format that is not known here. Nothing is passed over.
//!
//! Synchronous; whoever serves decides on threads. Nothing is ever written.

pub mod delta;
pub mod iceberg;
pub mod limits;
mod path;
pub mod place;
pub mod rows;
pub mod snapshot;

mod column;
mod constant;
mod deleted;
mod equal;

pub use limits::Limits;
pub use place::{Bucket, Entry, File, Folder, Hashes, Place};
pub use rows::{Batches, Rows};
pub use snapshot::{DataFile, Evidence, Snapshot};
