//! The scheduler's core: rules by example, and invariants over random workloads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "helpers of tests; the numbers are small"
)]

mod demand;
mod fair;
mod packing;
mod properties;
mod quotas;
mod ranked;
mod restore;
mod rules;
mod simulate;
mod waits;
mod world;
