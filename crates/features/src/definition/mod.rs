//! Definitions: what features there are, about what, from where.
//!
//! ```text
//! spec    as its author writes it
//! check   what it must keep to on its own
//! apply   beside what there is: created, a new version, described anew, unchanged
//! form    what decides the numbers: frozen, hashed, numbered
//! ```
//!
//! Must hold:
//! - A version is never changed and never goes away. What decides the numbers makes a new one; what
//!   people say of it (owner, description, tags) changes in place.
//! - An apply is all or nothing, against the definitions that its plan was made from.
//! - What depends on something that changes gets a version of its own: a version of a service fixes
//!   the versions of its views, and those fix their entities and sources.
//!
//! Not here: rows (`history`, `source`), joining them (`offline`, `training`).

pub mod apply;
pub mod catalog;
mod check;
pub(crate) mod columns;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod definition;
mod diff;
pub mod form;
pub(crate) mod http;
pub(crate) mod path;
mod service;
pub mod spec;
pub(crate) mod store;
#[cfg(test)]
mod tests;

pub use catalog::Catalog;
pub(crate) use definition::shown;
pub use definition::{Applied, Definition, VersionId, ViewVersion, resource};
pub use diff::{Difference, differences};
pub use service::{Diff, Report, UsedBy};
