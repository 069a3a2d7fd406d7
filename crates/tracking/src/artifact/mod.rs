//! Artifacts: the files that runs and models leave behind, kept in the encrypted object store.
//!
//! ```text
//! path      1/<run>/artifacts/model/MLmodel      what clients write, read, list and delete
//! artifact  (project, path) → content            one blob, or the parts of a large upload
//! blob      bytes, sealed, kept once             falaj_store::objects
//! ```
//!
//! Must hold:
//! - A path is a key in a table and never becomes a path on a disk. It is checked all the same,
//!   because clients make paths of it.
//! - Whoever touches a path inside a run or a logged model is allowed to by its experiment; a path
//!   that names a run or model which is not exactly there reads as not there.
//! - A file appears, or takes the place of another, at once and when all of it is durable.
//! - Deleting takes the content's last reference away, and the collector then its bytes.
//! - Content is never shown as a part of this site ([`falaj_web::download`]).
//! - A signed URL does one thing: one part of one upload, or one file. It names who asked for it,
//!   and that is who the audit log names.
//!
//! Not here: encryption, deduplication and collecting (`falaj_store::objects`), what models are.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod artifact;
mod below;
mod config;
mod content;
mod copy;
mod grant;
pub mod http;
mod list;
mod location;
mod media;
mod owner;
mod parts;
mod path;
mod purge;
mod service;
mod store;
mod upload;

pub use artifact::{Artifact, FileInfo};
pub use below::files_below;
pub use config::ArtifactConfig;
pub use content::{Content, ContentStream};
pub use copy::Copied;
pub use grant::SignedUrls;
pub use list::{Listing, Pages};
pub(crate) use location::has_plain_query;
pub use location::{climbs, collects_tokens, location_below};
pub(crate) use media::guessed_type;
pub use owner::{Owner, proxied_path};
pub(crate) use owner::{lock_model, lock_run};
pub use path::ArtifactPath;
pub(crate) use path::Named;
pub use purge::Purged;
pub use service::Limits;
pub use store::SCHEMA;
pub(crate) use store::files_after;
pub use upload::workers;
