//! Running models: instances, batches, queues, and the memory they share.
//!
//! Knows no database and no HTTP server. A [`Fleet`] finds models by [`ModelKey`] through a
//! [`Source`], loads them when they are asked for, and unloads those that nobody asks when memory
//! is needed. A [`Model`] answers: [`Model::infer`].

mod admit;
mod ask;
mod batch;
mod cache;
mod cost;
mod fleet;
mod instances;
mod job;
mod key;
mod line;
mod meter;
mod model;
mod remote;
mod repair;
mod room;
mod run;
mod settings;
mod source;
mod statistics;
mod work;

pub use ask::{Answer, Ask, Inputs, Priority, Times};
pub use fleet::{Fleet, LoadState, Loaded};
pub use key::ModelKey;
pub use model::Model;
pub use remote::RemoteConfig;
pub use settings::{Batching, FleetConfig, MAX_BATCH_ROWS, MAX_DELAY, MAX_INSTANCES, Settings};
pub use source::{Content, Fetched, Source};
pub use statistics::{BatchStatistics, Histogram, LATENCY_BUCKETS, Spent, Statistics};

#[cfg(test)]
mod tests;
