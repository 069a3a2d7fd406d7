//! Bringing the rows of views' sources into the online store.
//!
//! ```text
//! ask     views and a window; a job that waits, for the store of the server that was asked
//! run     rows read from the source and applied, a batch at a time; how far is put down
//! end     how far each view was brought into that store
//! ```
//!
//! Which rows stay is decided as it is for those that are pushed. So it does no harm to be stopped
//! anywhere and run again: a job that a crash ended goes on behind the rows that last.
//!
//! Must hold: a window includes both its ends; a row that became known within it belongs to it as
//! well, however old its event is, and one that is not known yet does not. What a job says it has
//! brought survives a crash of the server. Of two rows of one event that became known at one time,
//! the one of the later job stays. One job at a time brings a view into a store.

pub(crate) mod http;
mod job;
mod read;
mod run;
mod service;
mod store;

pub(crate) use run::Underway;
pub(crate) use run::worker;
pub(crate) use service::Window;
pub(crate) use store::SCHEMA;
