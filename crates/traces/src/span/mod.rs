//! Spans as they are kept and shown.

pub mod preview;
pub(crate) mod shape;
pub(crate) mod store;
pub mod usage;
