//! The server.
pub mod grpc;
pub mod http;
pub mod metrics;
pub mod telemetry;
pub mod workers;
