//! The latest values of features, found by key in microseconds.
//!
//! | module | holds |
//! |---|---|
//! | [`value`] | kinds and values, and their names and JSON |
//! | [`moment`] | moments as text, as Feast writes them |
//!
//! Not here: what a feature view is and who may read it (`features`).

pub mod moment;
pub mod value;

pub use value::{Kind, Scalar, Value};
