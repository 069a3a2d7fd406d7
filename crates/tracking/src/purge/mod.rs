//! Deleting for good: by name, by retention, and never what a legal hold or a registered model
//! keeps.
//!
//! ```text
//! run, model, experiment in the bin
//!   → one transaction: looked at, put on record, out of sight, a task left behind   service.rs
//!   → many small ones: points, parameters, tags, files, and last the task itself    drain.rs
//! ```
//!
//! Must hold:
//! - What is on record as purged is out of sight from that moment, for every reader, and its rows
//!   and files follow: by the request itself if it has the time, by the worker if not.
//! - Nothing under a legal hold is purged, nor its files deleted or replaced, by anyone.
//! - Files that a registered model version refers to stay where they are: their run, model or
//!   experiment cannot be purged while the version is there.
//! - An experiment's name is free again at once; its id is never given twice.
//!
//! Not here: the bin itself (`delete` and `restore` of each noun), collecting blobs that nothing
//! refers to any more (`store::objects`).

mod config;
mod drain;
mod gc;
mod hold;
pub(crate) mod http;
mod keeper;
mod report;
mod retention;
mod service;
mod store;
mod worker;

pub use config::PurgeConfig;
pub use gc::Gc;
pub use hold::check_files as check_no_hold;
pub use hold::{Hold, NewHold};
pub use keeper::{Keeper, Kept, pin};
pub use report::{GcReport, KeptItem};
pub use retention::Retention;
pub use service::Gone;
pub(crate) use store::{SCHEMA, refuse_while_purged};
pub(crate) use worker::worker;
