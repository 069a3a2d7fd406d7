//! Versions: which files a dataset is made of, and how that came about.
//!
//! ```text
//! put       the files that are named, in place of those before
//! append    the files that are named, after those of the version before
//! rollback  the files of an older version again
//! erase     the files of the version before, one of them without rows that had to go
//! ```
//!
//! Must hold:
//! - A version never changes. Its digest is that of what it holds, so equal contents have equal
//!   digests, whoever made them and when.
//! - The numbers of a dataset's versions run on without gaps, and a version follows the one that it
//!   was made from.
//! - A version that was removed stays in the history; only its files are gone.

pub(crate) mod http;
mod open;
mod service;
pub(crate) mod store;
mod tag;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod version;
mod whole;

pub use open::Opened;
pub(crate) use open::opened;
pub use service::NewVersion;
pub(crate) use service::{Commit, FILE, Kept, VERSION, remove};
pub use tag::Tag;
pub use version::{ColumnInfo, Manifest, Origin, Verb, Version, VersionFile, Which, columns_of};
