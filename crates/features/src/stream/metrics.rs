//! The numbers of streams, for Prometheus: by project, source and partition.
//!
//! Must hold: labels name partitions that are read here, of which there is a limit. Counts are those
//! of this server since it started.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::status::State;
use super::store::Step;
use crate::Features;

/// Reads the numbers when it is asked.
#[derive(Debug)]
pub struct StreamCollector(Features);

impl StreamCollector {
    #[must_use]
    pub fn new(features: Features) -> Self {
        Self(features)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    pub(super) project: String,
    pub(super) source: String,
    pub(super) partition: i32,
}

/// What one partition did here.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    rows: AtomicU64,
    bad: AtomicU64,
    skipped: AtomicU64,
    next: AtomicI64,
    lag: AtomicI64,
    running: AtomicBool,
    /// Whether it was ever read here; if not, another server tells of it.
    seen: AtomicBool,
}

const RELAXED: Ordering = Ordering::Relaxed;

impl Gauge {
    pub(super) fn kept(&self, step: &Step) {
        let count = |counter: &AtomicU64, more: i64| {
            counter.fetch_add(more.max(0).cast_unsigned(), RELAXED);
        };
        count(&self.rows, step.rows);
        count(&self.bad, step.bad);
        count(&self.skipped, step.skipped);
        self.stands(step.next, step.lag);
    }

    pub(super) fn stands(&self, next: i64, lag: i64) {
        self.next.store(next, RELAXED);
        self.lag.store(lag, RELAXED);
        self.running.store(true, RELAXED);
        self.seen.store(true, RELAXED);
    }

    pub(super) fn is_in(&self, state: State) {
        self.running.store(state == State::Running, RELAXED);
        self.seen.store(true, RELAXED);
    }

    /// Somebody else may read it from now on.
    pub(super) fn let_go(&self) {
        self.running.store(false, RELAXED);
    }
}

/// A number of a partition: what it is called, what it means, and where it stands.
type Count = (&'static str, &'static str, fn(&Gauge) -> u64);
type Level = (&'static str, &'static str, fn(&Gauge) -> i64);

const COUNTERS: &[Count] = &[
    ("feature_stream_rows", "Records of streams that became rows", |it| it.rows.load(RELAXED)),
    ("feature_stream_bad", "Records of streams that were put aside", |it| it.bad.load(RELAXED)),
    ("feature_stream_skipped", "Offsets that were gone before they were read", |it| {
        it.skipped.load(RELAXED)
    }),
];

const GAUGES: &[Level] = &[
    ("feature_stream_lag", "Records that wait", |it| it.lag.load(RELAXED)),
    ("feature_stream_offset", "The offset of the next record", |it| it.next.load(RELAXED)),
    ("feature_stream_running", "Whether the partition is read here", |it| {
        i64::from(it.running.load(RELAXED))
    }),
];

impl Collector for StreamCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut all = self.0.streams().gauges();
        all.retain(|(_, gauge)| gauge.seen.load(RELAXED));
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, gauge) in &all {
                let value = read(gauge);
                family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, gauge) in &all {
                family.encode_family(labels)?.encode_gauge(&read(gauge))?;
            }
        }
        Ok(())
    }
}
