//! The numbers of serving, for Prometheus: by project, endpoint, variant and version.
//!
//! Must hold: labels name endpoints that exist, of which there is a limit, and never what a caller
//! wrote, so the number of series is bounded. Counts begin anew when a model is loaded anew.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::Serving;
use crate::runtime::{LATENCY_BUCKETS, Statistics};

/// Reads the statistics when it is asked.
#[derive(Debug)]
pub struct ServingCollector(Serving);

impl ServingCollector {
    #[must_use]
    pub fn new(serving: Serving) -> Self {
        Self(serving)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    project: String,
    endpoint: String,
    variant: String,
    version: String,
}

/// A number of a model: what it is called, what it means, and where it stands.
type Number = (&'static str, &'static str, fn(&Statistics) -> u64);

const COUNTERS: &[Number] = &[
    ("serving_requests", "Requests that a model answered", |s| s.success.count),
    ("serving_failures", "Requests that a model did not answer", |s| s.fail.count),
    ("serving_refused", "Requests refused because too many waited", |s| s.refused),
    ("serving_timed_out", "Requests whose deadline passed", |s| s.timed_out),
    ("serving_cancelled", "Requests given up by whoever asked", |s| s.cancelled),
    ("serving_rows", "Rows that a model answered", |s| s.inference_count),
    ("serving_runs", "Runs of a model: several requests may share one", |s| s.execution_count),
    ("serving_cache_hits", "Answers that were kept from before", |s| s.cache_hit.count),
    ("serving_cache_misses", "Answers that were not", |s| s.cache_miss.count),
    ("serving_queue_nanoseconds", "Time that requests waited", |s| s.queue.ns),
    ("serving_compute_nanoseconds", "Time that a model computed", |s| s.compute_infer.ns),
];

const GAUGES: &[Number] = &[
    ("serving_waiting", "Requests that wait", |s| s.waiting as u64),
    ("serving_in_flight", "Requests under way, those that wait included", |s| s.in_flight as u64),
];

impl Collector for ServingCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.statistics();
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, done) in &all {
                let value = read(done);
                family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, done) in &all {
                family.encode_family(labels)?.encode_gauge(&read(done))?;
            }
        }
        let (name, help) = ("serving_latency_seconds", "Time from question to answer");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, done) in &all {
            let ends = LATENCY_BUCKETS.iter().copied().chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = ends.zip(done.latency.counts.iter().copied()).collect();
            let (sum, count) = (done.latency.sum.as_secs_f64(), done.latency.counts.iter().sum());
            let mut family = family.encode_family(labels)?;
            family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let (log, later) = (self.0.predictions().log().counts(), self.0.later().counts());
        for (name, help, value) in [
            ("serving_rate_limited", "Requests over an endpoint's limit", self.0.rates().refused()),
            ("predictions_offered", "Predictions to be kept", log.taken + log.dropped),
            ("predictions_kept", "Predictions that are in files", log.written),
            ("predictions_dropped", "Predictions that there was no room for", log.dropped),
            ("predictions_lost", "Predictions whose file could not be written", log.lost),
            ("prediction_files", "Files of predictions that were written", log.files),
            ("later_submitted", "Requests taken to be answered later", later.submitted),
            ("later_done", "Requests that were answered later", later.done),
            ("later_failed", "Requests that were to be answered later and failed", later.failed),
            ("later_again", "Attempts to answer later that are made again", later.again),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            family.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let loaded = self.0.fleet().loaded().len() as u64;
        let (bytes, _) = self.0.fleet().memory();
        for (name, help, value) in [
            ("serving_models_loaded", "Models in memory", loaded),
            ("serving_model_bytes", "Memory that loaded models take, as estimated", bytes),
            ("predictions_waiting_bytes", "Predictions in memory", log.waiting_bytes),
            ("later_running", "Requests that are being answered later", later.running),
        ] {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

impl Serving {
    /// What every model did that was asked here and is loaded.
    fn statistics(&self) -> Vec<(Labels, Statistics)> {
        let mut all = Vec::new();
        for (project, served) in self.live().all() {
            for arm in &served.arms {
                let Some(model) = self.fleet().ready(&arm.key) else { continue };
                let labels = Labels {
                    project: project.to_string(),
                    endpoint: served.name.clone(),
                    variant: arm.variant.to_string(),
                    version: arm.version.to_string(),
                };
                all.push((labels, model.statistics()));
            }
        }
        all
    }
}
