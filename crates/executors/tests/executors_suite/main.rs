//! What every executor promises, on every engine that is there; and what the local one promises alone.
//!
//! Slurm and Ray are those that `scripts/with-services` starts. Without them their tests say so and pass.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod conformance;
mod crash;
mod engine;
mod local;
mod ray;
mod slurm;
