//! Features that are computed, over real stores: every test runs on SQLite and on PostgreSQL, and
//! what is read online on both online stores.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a table is as long as it is")]

mod demand;
mod place;
mod refused;
mod rows;
mod windows;
#[allow(dead_code, reason = "shared with the other tests of features")]
#[path = "../features/world.rs"]
mod world;
