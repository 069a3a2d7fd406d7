//! What is known about features, over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the other tests of this crate use more of it")]
#[path = "../features/world.rs"]
mod world;

mod datasets;
mod known;
