//! Transformations against plain definitions, and SQL against SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::float_cmp, reason = "what is exact is equal")]
#![allow(clippy::too_many_lines, reason = "a table is as long as it is")]

mod hostile;
mod oracle;
mod sql;
mod window;
