//! Iceberg, versions 1 and 2: metadata, lists of manifests, manifests, and the deletes of both kinds.
//!
//! ```text
//! metadata   which metadata is meant, which snapshot, which schema
//! schema     columns by their numbers, so that a column may change its name
//! avro       records out of Avro, within limits
//! manifest   which files there are
//! deletes    which rows of them are gone
//! table      all of it put together
//! ```
//!
//! Files are looked for below the folder of the table: of an address that metadata tells, only what
//! comes after the table's own location counts, so that a table may be moved.

mod avro;
mod deletes;
mod manifest;
mod metadata;
mod schema;
mod table;

pub use metadata::Pin;
pub use table::snapshot;
