//! Transformations against plain definitions, and SQL against SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod hostile;
mod oracle;
mod sql;
mod window;
