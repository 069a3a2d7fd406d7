//! Metric points: what they are, how they are kept, and how they are read.
//!
//! `point` is the noun; `codec`, `history`, `sample` and the folding in `latest` are plain
//! functions on points; `store`, `chart` and `compact` are the tables; `compactor` is the background work.
//!
//! Must hold: a history is a *set* of points in order. Everything here gives the same result if a
//! point arrives twice, late, or beside others, so clients may repeat a request freely.
//!
//! Not here: the names of metrics (a key is a number here) and who may read or write them.

mod chart;
pub mod codec;
pub mod compact;
pub mod compactor;
pub mod config;
pub mod history;
pub(crate) mod http;
pub mod latest;
pub mod point;
pub mod sample;
mod service;
pub mod store;

pub use compactor::Compactor;
pub use config::CompactionConfig;
pub use history::{HistoryCursor, HistoryPage, Steps};
pub use latest::Latest;
pub use point::Point;
pub use sample::Sampling;
pub(crate) use store::SCHEMA;
