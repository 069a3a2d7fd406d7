//! The online stores: one suite for both, and what each has of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "store/conformance.rs"]
mod conformance;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/harness.rs"]
mod harness;
#[path = "store/old.rs"]
mod old;
#[path = "store/redis.rs"]
mod redis;
