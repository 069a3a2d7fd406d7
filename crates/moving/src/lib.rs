//! Moving to Falaj and away from it: reading the stores that MLflow keeps, and writing one; reading
//! what Feast's registry declares ([`feast`]).
//!
//! ```text
//! source    a folder of files, SQLite or PostgreSQL    → record   what any of them holds
//! artifact  where the files of a run are, and their bytes
//! series    points of metrics, in order and in bounded memory
//! sink      record → a SQLite database that a stock MLflow opens
//! ```
//!
//! Must hold:
//! - A source is only read, SQL in one snapshot, and nothing in it is trusted: sizes and depths are
//!   bounded, and no path in it leads out of the folder that was given.
//! - Reading and writing agree: what a sink wrote reads as what it was given ([`digest`]).
//!
//! Not here: talking to a server (`cli`), what a server makes of it (`tracking`, `registry`).

pub mod artifact;
pub mod digest;
mod error;
pub mod feast;
mod files;
pub mod record;
pub mod series;
pub mod sink;
mod source;
mod sql;
mod yaml;

pub use error::{Error, Result};
pub use source::{Reading, Source};
