//! Features over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod definitions;
mod erase;
mod history;
mod jobs;
mod materialize;
mod online;
mod stores;
mod training;
mod world;
