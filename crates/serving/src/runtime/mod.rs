//! Running models: instances, batches, queues, and the memory they share.
//!
//! Knows no database and no HTTP server. A [`Fleet`] finds models by [`ModelKey`] through a
//! [`Source`], loads them when they are asked for, and unloads those that nobody asks when memory
//! is needed. A [`Model`] answers: [`Model::infer`].

mod ask;
mod fleet;
mod key;
mod model;
mod remote;
mod settings;
mod source;
mod statistics;

pub use ask::{Answer, Ask, Inputs, Priority, Times};
pub use fleet::{Fleet, LoadState, Loaded};
pub use key::ModelKey;
pub use model::Model;
pub use remote::RemoteConfig;
pub use settings::{Batching, FleetConfig, MAX_BATCH_ROWS, MAX_DELAY, MAX_INSTANCES, Settings};
pub use source::{Content, Fetched, Source};
pub use statistics::{BatchStatistics, Histogram, LATENCY_BUCKETS, Spent, Statistics};
