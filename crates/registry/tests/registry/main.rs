//! The registry's routes over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod aliases;
mod approvals;
mod content;
mod evidence;
mod import;
mod models;
mod purge;
mod races;
mod search;
mod sources;
mod sync;
mod versions;
mod webhooks;
mod world;
