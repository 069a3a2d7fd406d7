//! Who moved which alias or stage, from where to where, and when. It only grows.

mod entry;
pub(crate) mod http;
mod service;
pub(crate) mod store;

pub(crate) use entry::Move;
pub use entry::{Entry, Kind};
