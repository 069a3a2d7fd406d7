//! Columns on disk: Parquet files written and read through Arrow arrays.
//!
//! | module | holds |
//! |---|---|
//! | [`column`] | named, typed columns and batches of them |
//! | [`decimal`] | decimals as text |
//! | [`write`] | batches into a file, zstd, row groups of bounded size |
//! | [`read`] | a stranger's file into batches, within [`Limits`] |
//! | [`rows`] | columns into the inputs of a model, and its outputs into columns |
//!
//! The only crate that knows Parquet. Arrow shows where rows are computed on as Arrow has them
//! ([`Records`], [`RecordWriter`]). Synchronous; whoever serves decides on threads.

mod arrow;
pub mod column;
pub mod decimal;
pub mod limits;
pub mod read;
pub mod rows;
pub mod write;

pub use column::{Batch, Column, Field, Item, Many};
pub use limits::Limits;
pub use read::{Batches, Blocks, Part, Ranges, Records, Source, Table};
pub use rows::{Plan, columns_of};
pub use write::{Layout, RecordWriter, Writer, unwritable};
