//! The front door to objects: named bytes of a project, streamed both ways.
//!
//! Must hold:
//! - A name is never part of a path on disk or in a bucket; it is a column. It is checked all the
//!   same, because clients make paths of it.
//! - Content is what its owner says it is and is never shown as part of this site: it is sent as
//!   an attachment, in a sandbox, with sniffing off.
//! - An object replaces another of its name at once, when all of it is durable; a reader that has
//!   begun goes on with the old one.
//! - A project's objects lie in its zone, sealed by a key of that zone, or nowhere.
//!
//! Not here: encryption, deduplication, cleaning up (`falaj_store::objects`).

mod http;
mod name;
mod object;
pub mod range;
mod service;
mod store;
#[cfg(test)]
mod tests;

pub use http::routes;
pub use name::ObjectName;
pub use object::Object;
pub use service::ObjectService;
pub use store::MIGRATIONS;

use falaj_base::{Action, Role};

pub static OBJECT_WRITE: Action =
    Action::write("object:write", Role::Contributor, "Store or replace an object");
pub static OBJECT_READ: Action = Action::read("object:read", Role::Viewer, "Read an object");
pub static OBJECT_LIST: Action =
    Action::read("object:list", Role::Viewer, "List the objects of a project");
pub static OBJECT_DELETE: Action =
    Action::write("object:delete", Role::Contributor, "Delete an object");

pub static ACTIONS: &[&Action] = &[&OBJECT_WRITE, &OBJECT_READ, &OBJECT_LIST, &OBJECT_DELETE];
