//! The server: one process that composes the domains, listens, and does their background work.
//!
//! | module | holds |
//! |---|---|
//! | `modules` | the table of contents: every domain, its tables, actions, routes and workers |
//! | `serve` | start and stop, in order |
//! | `services`, `first_start` | opening the floor; what a fresh installation gets |
//! | `http` | the port, TLS, limits, the door, the router |
//! | `grpc` | gRPC on the same port |
//! | `workers` | running background work under leases |
//! | `events`, `objects`, `backup` | front doors to what the store holds |
//! | `edge` | models from a folder, without a database |
//! | `telemetry`, `metrics` | logs, traces, numbers |
//! | `config` | everything an operator can set |
//! | `data_dir`, `process` | the folder and the process itself |
//!
//! Must hold: this crate composes and decides nothing: who may do what, and what is kept how,
//! is settled in the crates below.

pub mod backup;
pub mod config;
pub mod data_dir;
mod dataset_runs;
pub mod edge;
pub mod events;
mod first_start;
pub mod grpc;
pub mod http;
pub mod metrics;
pub mod modules;
pub mod objects;
mod process;
pub mod serve;
pub mod services;
mod start_pages;
pub mod telemetry;
pub mod workers;

pub use config::Config;

/// What `edge` is told.
pub mod serving {
    pub use falaj_serving::ServingConfig;
    pub use falaj_serving::edge::EdgeConfig;
    pub use falaj_serving::endpoint::Runs;
}
pub use process::stop_signal;
pub use serve::{Server, Started, serve, serve_with};
