//! The traces domain through its routes: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod keeping;
mod limits;
mod searching;
mod sizes;
mod spans;
mod walls;
mod world;
