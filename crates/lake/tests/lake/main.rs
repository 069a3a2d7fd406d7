//! Tables out of logs that were written by hand: what they come to, and what is refused by name.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod delta;
mod iceberg;
mod places;
mod world;
