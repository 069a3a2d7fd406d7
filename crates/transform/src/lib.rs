//! Transformations: what features are made of, computed the same way everywhere.
//!
//! | module | holds |
//! |---|---|
//! | [`sql`] | expressions over the columns of rows: read, typed, evaluated |
//! | [`window`] | aggregates over windows of time, in tiles that can be merged |
//! | [`hash`] | a hash of values that never changes |
//!
//! Must hold:
//! - The same rows lead to the same values, in whatever order and batches they come, on every
//!   machine: there is no clock, no chance and no setting in here.
//! - What a text asks for is bounded before it is done: length, depth, bytes.
//!
//! Not here: where rows come from and where values go (`features`). Nothing here reads or writes.

pub mod hash;
pub mod sql;
pub mod window;

use std::fmt;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int32,
    Int64,
    Float32,
    Float64,
    Text,
    Bytes,
    /// Microseconds since 1970, UTC.
    Time,
    /// Something that can be handed on and asked whether it is there: a list, a date, a decimal.
    Other,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Time => "timestamp",
            Self::Other => "list, date or decimal, which is only handed on",
        })
    }
}
