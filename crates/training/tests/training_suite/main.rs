//! Jobs over real stores and an executor that does what it is told: every test runs on SQLite and on
//! PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod budgets;
mod deleted;
mod engine;
mod held;
mod jobs;
mod lost;
mod moved;
mod nodes;
mod places;
mod saves;
mod servers;
mod shares;
mod taken;
mod used;
mod waits;
mod world;
