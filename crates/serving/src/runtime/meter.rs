//! Counting what a model does, without a lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use falaj_base::{Error, code};

use super::cost::nanos;
use super::statistics::{BatchStatistics, Histogram, LATENCY_BUCKETS, Spent, Statistics};

/// Up to so many rows, runs are counted by their very number of rows; then by powers of two.
const EXACT_ROWS: usize = 128;
const ROWS: usize = EXACT_ROWS + 25;

#[derive(Debug)]
pub(super) struct Meter {
    inference_count: AtomicU64,
    execution_count: AtomicU64,
    last_inference: AtomicU64,
    success: Span,
    fail: Span,
    queue: Span,
    compute: [Span; 3],
    pub(super) cache_hit: Span,
    pub(super) cache_miss: Span,
    batches: Box<[BatchSpans]>,
    latency: [AtomicU64; LATENCY_BUCKETS.len() + 1],
    refused: AtomicU64,
    timed_out: AtomicU64,
    cancelled: AtomicU64,
    panicked: AtomicU64,
    in_flight: AtomicUsize,
}

#[derive(Debug, Default)]
struct BatchSpans {
    count: AtomicU64,
    ns: [AtomicU64; 3],
}

/// How often, and for how long.
#[derive(Debug, Default)]
pub(super) struct Span {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Span {
    pub(super) fn add(&self, count: u64, time: Duration) {
        self.count.fetch_add(count, Relaxed);
        self.ns.fetch_add(nanos(time), Relaxed);
    }

    fn read(&self) -> Spent {
        Spent { count: self.count.load(Relaxed), ns: self.ns.load(Relaxed) }
    }
}

/// What the parts of one run took: putting together, computing, taking apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunTimes {
    pub input: Duration,
    pub infer: Duration,
    pub output: Duration,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            inference_count: AtomicU64::new(0),
            execution_count: AtomicU64::new(0),
            last_inference: AtomicU64::new(0),
            success: Span::default(),
            fail: Span::default(),
            queue: Span::default(),
            compute: Default::default(),
            cache_hit: Span::default(),
            cache_miss: Span::default(),
            batches: (0..ROWS).map(|_| BatchSpans::default()).collect(),
            latency: std::array::from_fn(|_| AtomicU64::new(0)),
            refused: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
        }
    }
}

impl Meter {
    /// A request begins; what is given back counts its end, or that it was given up.
    pub(super) fn begin(&self) -> Underway<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        Underway { meter: self, ended: false }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn queued(&self, time: Duration) {
        self.queue.add(1, time);
    }

    /// A run ended well, for so many requests with so many rows altogether. As others do, the time
    /// of a run counts for each request that shared it.
    pub(super) fn ran(&self, requests: usize, rows: usize, times: RunTimes) {
        self.execution_count.fetch_add(1, Relaxed);
        self.inference_count.fetch_add(rows.max(1) as u64, Relaxed);
        let batch = &self.batches[place(rows)];
        batch.count.fetch_add(1, Relaxed);
        let parts = [times.input, times.infer, times.output];
        for ((time, span), batch) in parts.into_iter().zip(&self.compute).zip(&batch.ns) {
            let requests = u32::try_from(requests).unwrap_or(u32::MAX);
            span.add(u64::from(requests), time.saturating_mul(requests));
            batch.fetch_add(nanos(time), Relaxed);
        }
    }

    pub(super) fn panicked(&self) {
        self.panicked.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> Statistics {
        let counts = self.latency.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let success = self.success.read();
        Statistics {
            inference_count: self.inference_count.load(Relaxed),
            execution_count: self.execution_count.load(Relaxed),
            last_inference: self.last_inference.load(Relaxed),
            success,
            fail: self.fail.read(),
            queue: self.queue.read(),
            compute_input: self.compute[0].read(),
            compute_infer: self.compute[1].read(),
            compute_output: self.compute[2].read(),
            cache_hit: self.cache_hit.read(),
            cache_miss: self.cache_miss.read(),
            batches: self.batches.iter().enumerate().filter_map(read_batch).collect(),
            latency: Histogram { counts, sum: Duration::from_nanos(success.ns) },
            refused: self.refused.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            panicked: self.panicked.load(Relaxed),
            waiting: 0,
            waiting_bytes: 0,
            in_flight: self.in_flight(),
        }
    }
}

fn place(rows: usize) -> usize {
    match rows {
        ..EXACT_ROWS => rows,
        _ => (EXACT_ROWS + (rows / EXACT_ROWS).ilog2() as usize).min(ROWS - 1),
    }
}

fn read_batch((place, spans): (usize, &BatchSpans)) -> Option<BatchStatistics> {
    let count = spans.count.load(Relaxed);
    let spent = |part: usize| Spent { count, ns: spans.ns[part].load(Relaxed) };
    let size = if place < EXACT_ROWS { place } else { EXACT_ROWS << (place - EXACT_ROWS) };
    (count > 0).then(|| BatchStatistics {
        batch_size: size as u64,
        compute_input: spent(0),
        compute_infer: spent(1),
        compute_output: spent(2),
    })
}

/// A request that is under way.
pub(super) struct Underway<'a> {
    meter: &'a Meter,
    ended: bool,
}

impl Underway<'_> {
    pub(super) fn succeeded(mut self, took: Duration) {
        self.ended = true;
        let meter = self.meter;
        meter.success.add(1, took);
        let seconds = took.as_secs_f64();
        let bucket = LATENCY_BUCKETS.partition_point(|&bound| bound < seconds);
        meter.latency[bucket].fetch_add(1, Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        meter.last_inference.store(u64::try_from(now.as_millis()).unwrap_or(0), Relaxed);
    }

    pub(super) fn failed(mut self, took: Duration, error: &Error) {
        self.ended = true;
        self.meter.fail.add(1, took);
        if *error.code() == code::OVERLOADED {
            self.meter.refused.fetch_add(1, Relaxed);
        } else if *error.code() == code::DEADLINE_EXCEEDED {
            self.meter.timed_out.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.meter.in_flight.fetch_sub(1, Relaxed);
        if !self.ended {
            self.meter.cancelled.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_rows_and_by_execution() {
        let meter = Meter::default();
        let times = RunTimes { infer: Duration::from_nanos(10), ..RunTimes::default() };
        meter.ran(1, 1, times);
        meter.ran(3, 7, times);
        meter.ran(1, 700, times);
        let read = meter.read();
        assert_eq!((read.inference_count, read.execution_count), (708, 3));
        assert_eq!(read.compute_infer, Spent { count: 5, ns: 50 });
        let sizes: Vec<_> = read.batches.iter().map(|batch| batch.batch_size).collect();
        assert_eq!(sizes, [1, 7, 512]);
        meter.ran(1, usize::MAX, times);
    }

    #[test]
    fn every_request_ends_one_way() {
        let meter = Meter::default();
        meter.begin().succeeded(Duration::from_micros(300));
        meter.begin().succeeded(Duration::from_secs(100));
        let error = Error::new(&code::OVERLOADED, "full");
        meter.begin().failed(Duration::ZERO, &error);
        drop(meter.begin());
        let going = meter.begin();
        let read = meter.read();
        assert_eq!((read.success.count, read.fail.count), (2, 1));
        assert_eq!((read.refused, read.cancelled, read.in_flight), (1, 1, 1));
        let filled: Vec<_> = (0..read.latency.counts.len())
            .filter(|&bucket| read.latency.counts[bucket] > 0)
            .collect();
        assert_eq!(filled, [2, LATENCY_BUCKETS.len()]);
        drop(going);
    }
}
