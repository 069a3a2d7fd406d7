//! The console output of a run, kept: bytes in the order they were written.
//!
//! Must hold:
//! - A piece is appended once, however often it is sent: its sender says where it begins, and a
//!   piece that is there already is told so.
//! - Rows are of bounded size; a log is of bounded length.
//! - What is read is what was written, byte for byte. Nothing is made of it here: it may be binary,
//!   in any encoding, and full of what a terminal would obey.

mod config;
mod http;
mod service;
pub(crate) mod store;

pub use config::ConsoleConfig;
pub(crate) use http::routes;
pub use service::{LogPiece, LogSpan};
pub(crate) use store::SCHEMA;
