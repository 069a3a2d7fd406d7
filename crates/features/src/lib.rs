//! Features: what a model is told about the world, as it was known at a moment.
//!
//! | module | holds |
//! |---|---|
//! | [`offline`] | joining histories to moments, in Arrow |
//!
//! Must hold: a row of a training set says what was known at its moment and nothing that became
//! known later; every row that was asked about is answered, in the order it was asked.
//!
//! Not here: where histories lie, and who may read them.

pub mod offline;
