//! The traces domain through its routes: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod datasets;
mod issues;
mod keeping;
mod limits;
mod scorers;
mod searching;
mod sizes;
mod spans;
mod walls;
mod world;
