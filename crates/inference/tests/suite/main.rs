//! One binary of tests over the whole crate.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]

mod engines;
mod fixtures;
mod golden;
mod hostile;
mod library;
mod models;
mod networks;
