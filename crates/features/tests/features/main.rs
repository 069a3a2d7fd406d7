//! Features over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod definitions;
mod erase;
mod history;
mod jobs;
mod materialize;
mod online;
#[allow(dead_code, reason = "the tests of streams use more of it")]
#[path = "../../../streams/tests/streams/servers.rs"]
mod servers;
mod stores;
mod streams;
mod training;
mod types;
mod world;
