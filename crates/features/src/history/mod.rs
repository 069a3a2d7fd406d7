//! The history of pushed rows.
//!
//! The metadata database is the log: a push is one row of `feature_log`, appended in the
//! transaction that acknowledges it, and so durable and in order with everything else. Whoever keeps
//! the latest values elsewhere applies the same rows after the commit and reads the log again after
//! a crash.
//!
//! Must hold:
//! - Rows are kept as they were pushed, to the version of the view that they were pushed to.
//! - Rows that were gathered into files stay in the log for a while, and are read from one of both.
//! - They are known since the server's time of the push, and among those of one moment in the order
//!   of the log.
//!
//! Not here: the latest values (`online`).

mod fold;
mod home;
pub mod log;
mod rows;
pub(crate) mod segment;

pub(crate) use fold::{folder, lock as view_lock, trimmer};
pub(crate) use home::{SCHEMA as HOME, home};
pub use log::{Entry, Position, RENUMBERED, append, end, read_since, read_view};
pub use rows::Rows;
