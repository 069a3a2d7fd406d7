//! Jobs over real stores and an executor that does what it is told: every test runs on SQLite and on
//! PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod engine;
mod held;
mod jobs;
mod lost;
mod places;
mod saves;
mod taken;
mod waits;
mod world;
