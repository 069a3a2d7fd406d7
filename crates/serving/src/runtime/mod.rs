//! Running models: instances, batches, queues, and the memory they share.
//!
//! A [`Fleet`] finds models by [`ModelKey`] through a [`Source`], loads them when they are asked
//! for, and unloads those that nobody asks when memory is needed. A [`Model`] answers:
//! [`Model::infer`].
//!
//! | module | holds |
//! |---|---|
//! | `ask`, `key`, `settings`, `source`, `statistics` | what callers see |
//! | `fleet` | loading by one flight, golden outputs, warming up, memory, unloading |
//! | `model` | a question on its way: checked, looked for among kept answers, computed |
//! | `instances`, `work` | sessions, the threads that use them, and what waits |
//! | `admit`, `line` | who may wait, and what is ahead of whom |
//! | `batch` | the pure decision what runs next, together |
//! | `cost` | how long runs take, learned from runs |
//! | `run`, `repair` | one run, contained; a session in place of one that panicked |
//! | `remote` | the other way to compute: a server of the Open Inference Protocol |
//!
//! A question is computed in one of three ways. A light one (`cost::LIGHT`) on the thread that
//! asks, if a session is free: to hand it over would take longer than to compute it. If others are
//! under way and it would gain from their company (`cost::MEETING`), those that arrive on the thread
//! at the same time join the line first, and whoever is the first to come back computes for all
//! (`admit::Coming`). Any other waits in line for a thread of the model, which takes what piled up
//! while the sessions were busy. That of a remote model is sent on.
//!
//! Must hold:
//! - Every question ends one way: answered with its own rows, refused, too late, or given up.
//! - What waits is bounded in number and in bytes; whoever cannot be answered in time is told at
//!   once; whoever goes away leaves nothing behind, not even a run that nobody wants.
//! - Questions share a run only if answers do not depend on that.
//! - A panic costs the question that caused it, and a session that is replaced.
//!
//! Not here: databases, servers, who may ask, which variant answers.

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

/// The target of spans that are for traces alone. Nothing is logged under it, so they cost nothing
/// where traces are not sent.
pub const SPANS: &str = "falaj::spans";

#[cfg(test)]
mod tests;
