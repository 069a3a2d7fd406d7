//! The audit log: what was done, proven.
//!
//! Every change, denial and sign-in writes an entry in its own transaction (`falaj_store::record`).
//! Here the entries become the leaves of a Merkle tree, the tree's root is signed, and whoever
//! holds a signed root can tell offline whether a log was tampered with, and where.
//!
//! | module | holds |
//! |---|---|
//! | `merkle` | the tree's hashes, its growing edge, proofs (pure) |
//! | `checkpoint` | the signed note that commits to a root (pure) |
//! | `export` | the lines of an export (pure) |
//! | `verify` | the offline check of an export (pure) |
//! | `ocsf` | entries in a SIEM's words (pure) |
//! | `seal` | giving entries their place in the tree |
//! | `outside` | checkpoints kept outside the database |
//! | `check` | the check at start |
//! | `read_log`, `tally` | the queue of entries for allowed reads; many of them as one |
//! | `search`, `stream` | reading the log |
//! | `service`, `http` | the verbs and their routes |
//!
//! Must hold: an entry, once sealed, is never changed, moved or removed. Reading the log is
//! itself on the log.
//!
//! Not here: what goes into an entry (`falaj_store::record`), removing old segments (there is no
//! retention yet; a log is kept whole).

mod check;
pub mod checkpoint;
mod config;
pub mod export;
mod http;
pub mod merkle;
pub mod ocsf;
mod outside;
mod read_log;
mod seal;
mod search;
mod service;
mod store;
mod stream;
mod tally;
#[cfg(test)]
mod tests;
pub mod verify;

pub use check::Report;
pub use config::AuditConfig;
pub use http::routes;
pub use read_log::{AUDIT_GAP, FLUSH_EVERY, ReadLog};
pub use search::{Filter, Found};
pub use service::{
    ACTIONS, AUDIT_CHECKPOINT, AUDIT_EXPORT, AUDIT_READ, Audit, ExportQuery, SEAL_EVERY,
    SearchQuery,
};
pub use store::{MIGRATIONS, RENUMBERED};
pub use stream::Format;
pub use tally::Tally;
pub use verify::{Fault, Problem, Verified, verify, verify_bytes};
