//! Datasets over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod diffs;
mod files;
mod kept;
mod replaced;
mod versions;
mod world;
