//! Delta: a log of what was added and removed, with checkpoints of what that came to.
//!
//! ```text
//! log         which files of the log are needed: a checkpoint, and what was committed after it
//! action      what one line of a commit says
//! checkpoint  the same out of Parquet
//! table       all of it put together: the files, and what each column is called in them
//! vector      rows that are gone though their file is not
//! ```
//!
//! A table that asks its readers for more than is known here is refused by the name of what it asks.

mod action;
mod checkpoint;
mod log;
mod schema;
mod table;
mod vector;

pub use table::{Pin, snapshot};
