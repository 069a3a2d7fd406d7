//! The protocol as clients speak it, and as nobody should.
#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "these are tests; floats are compared to the bit"
)]

mod binary;
mod classes;
mod describe;
mod grpc;
mod hostile;
mod json;
mod made;
mod roundtrip;
mod scoring;
mod wire;
