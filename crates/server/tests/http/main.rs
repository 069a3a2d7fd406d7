//! The way in, attacked over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed expectation is a failed test"
)]

mod closed;
mod drain;
mod express;
mod grpc;
mod limits;
mod platform;
mod port;
mod public;
mod repeated;
mod residency;
mod slow;
mod start;
mod telemetry;
mod tls;
mod well_formed;
mod workers;
