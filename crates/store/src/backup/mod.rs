//! Backup and restore: one sealed stream that holds everything, whichever engines it came from.
//!
//! ```text
//! falaj-backup 1\n            what this is
//! {"created_at":…}\n          who made it when, and the wrapped key of the stream
//! sealed stream of frames:    tables in the order they refer to each other, row by row;
//!                             then the blobs, byte for byte as they lie in their roots;
//!                             then the summary that must agree with what was read
//! ```
//!
//! Must hold:
//! - The rows are one snapshot, taken while the server goes on; a blob a row refers to is in it.
//! - The stream opens only with the root key, never contains a key that is not wrapped, and a cut
//!   or altered one fails before anything is committed.
//! - A restore is all or nothing, into an empty place, from any engine into any other.
//!
//! Not here: who may take one, and what the audit log says to it (`server::backup`).

mod dump;
mod frame;
mod header;
mod load;

use std::collections::BTreeMap;

use falaj_base::{Error, code};
use serde::{Deserialize, Serialize};

pub use dump::{Dump, Renumber};
pub use load::{Empty, restore};

/// Tables that describe the running servers, or this very database, rather than what is kept: without
/// its generation a database that was restored is told from the one that was backed up.
const TRANSIENT: &[&str] = &["lease", "feature_generation"];

/// What a backup says it holds, at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rows by table.
    pub tables: BTreeMap<String, u64>,
    pub blobs: u64,
    /// Bytes of the blobs as they lie in their roots.
    pub bytes: u64,
}

fn damaged(what: impl Into<String>) -> Error {
    Error::new(&code::INTEGRITY, format!("the backup is damaged: {}", what.into()))
}
