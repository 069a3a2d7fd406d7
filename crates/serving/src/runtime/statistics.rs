//! What a model did, in the terms of the statistics extension of the Open Inference Protocol.

use std::time::Duration;

/// The upper ends of the buckets that latencies are counted in, in seconds.
pub const LATENCY_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// What a model did since it was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Rows that were answered.
    pub inference_count: u64,
    /// Runs of the model, each for one batch.
    pub execution_count: u64,
    /// When the last answer was given, in milliseconds since 1970; 0 if none was.
    pub last_inference: u64,
    /// Requests answered, and the time each took from question to answer.
    pub success: Spent,
    pub fail: Spent,
    pub queue: Spent,
    /// Putting rows of a batch together.
    pub compute_input: Spent,
    pub compute_infer: Spent,
    /// Taking rows of a batch apart.
    pub compute_output: Spent,
    pub cache_hit: Spent,
    pub cache_miss: Spent,
    /// By the rows of a run, in ascending order.
    pub batches: Vec<BatchStatistics>,
    pub latency: Histogram,
    /// Among the failed: refused since too many waited, or since it would have taken too long.
    pub refused: u64,
    /// Among the failed: the deadline passed.
    pub timed_out: u64,
    /// Given up by whoever asked.
    pub cancelled: u64,
    /// Runs that panicked; the session was loaded again.
    pub panicked: u64,
    /// Requests that wait now, and the bytes of their inputs.
    pub waiting: usize,
    pub waiting_bytes: usize,
    /// Requests that are under way now, those that wait included.
    pub in_flight: usize,
}

/// How often, and for how long altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub count: u64,
    pub ns: u64,
}

/// The runs with one number of rows. Over 128 rows, runs are counted under the power of two below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStatistics {
    pub batch_size: u64,
    pub compute_input: Spent,
    pub compute_infer: Spent,
    pub compute_output: Spent,
}

/// Latencies of answered requests: for each bucket those that ended in it, not below; the last is
/// for those over all of [`LATENCY_BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    pub counts: Vec<u64>,
    pub sum: Duration,
}
