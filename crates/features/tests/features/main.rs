//! Features over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod definitions;
mod history;
mod materialize;
mod online;
mod training;
mod world;
