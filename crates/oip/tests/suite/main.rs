//! The protocol as clients speak it, and as nobody should.

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
