//! Records as they are read.

use std::time::Duration;

use bytes::Bytes;

/// A record of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub offset: i64,
    /// When the server or the producer says it was made, in microseconds.
    pub at: Option<i64>,
    pub key: Option<Bytes>,
    pub body: Body,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Value(Bytes),
    /// The key has no value any more.
    Nothing,
    /// It stands there and cannot be read: what is wrong with it.
    Unreadable(String),
}

impl Body {
    /// What is there and takes more than it may.
    pub(crate) fn too_large(what: &str, size: usize, most: usize) -> Self {
        Self::Unreadable(format!(
            "too large: {what} takes {size} bytes; allowed: {most} (`max_record` of the stream)"
        ))
    }
}

/// How much is asked for at a time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub records: usize,
    /// Bytes of what records say, about: one record may be larger.
    pub bytes: usize,
    /// How long to wait for the first record.
    pub wait: Duration,
}

/// Some records of a partition, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub records: Vec<Record>,
    /// Where reading goes on. It may move without records: not every offset has one.
    pub next: i64,
    /// How many there are beyond, about.
    pub lag: u64,
}

/// Where a partition is begun that nothing was read of yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record that is there.
    Earliest,
    /// With the next one that comes.
    Latest,
    /// With the first at this time or later, in microseconds.
    At(i64),
}
