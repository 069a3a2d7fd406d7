//! The command as people and scripts run it: the real binary, and a real server behind it.

#![allow(clippy::unwrap_used, reason = "what a test cannot do without ends it")]

mod engine;
mod offline;
mod place;
mod with_server;
