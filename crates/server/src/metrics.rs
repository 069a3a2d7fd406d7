//! The numbers at `/metrics`, in the Prometheus text format.
//!
//! Must hold: labels come from our own tables (routes, known methods, worker names), never from
//! what a caller wrote, so the number of series is bounded.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use falaj_base::{Error, Result};
use falaj_store::db::Db;
use http::Method;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// What the response body of `/metrics` is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a cached read to a large backup.
const LATENCY_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// The server's numbers. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    latency: Family<RouteLabels, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    shed: Counter,
    worker_runs: Family<WorkerLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    worker: &'static str,
    outcome: &'static str,
}

impl RequestLabels {
    pub(crate) fn new(method: &Method, route: Option<&str>, status: u16) -> Self {
        Self { method: known(method), route: route.unwrap_or("(none)").to_owned(), status }
    }
}

/// A method anyone may invent must not become a label.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "(other)",
    }
}

fn latency_histogram() -> Histogram {
    Histogram::new(LATENCY_BUCKETS)
}

impl Metrics {
    #[must_use]
    pub fn new(db: Option<Db>, others: Vec<Box<dyn Collector>>) -> Self {
        let mut registry = Registry::with_prefix("falaj");
        let requests = Family::default();
        let latency: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(latency_histogram);
        let (in_flight, shed, worker_runs) =
            (Gauge::default(), Counter::default(), Family::default());
        registry.register("http_requests", "Requests answered", Family::clone(&requests));
        registry.register_with_unit(
            "http_request_duration",
            "Time from the head of a request to the head of its response",
            Unit::Seconds,
            latency.clone(),
        );
        registry.register("http_requests_in_flight", "Requests being answered", in_flight.clone());
        registry.register("http_requests_shed", "Requests refused for want of room", shed.clone());
        registry.register("worker_runs", "Runs of background work", Family::clone(&worker_runs));
        registry.register_collector(Box::new(ProcessCollector));
        if let Some(db) = db {
            registry.register_collector(Box::new(WriteCollector(db)));
        }
        for collector in others {
            registry.register_collector(collector);
        }
        Self(Arc::new(Inner { registry, requests, latency, in_flight, shed, worker_runs }))
    }

    /// Everything, as text.
    pub fn encode(&self) -> Result<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.registry)
            .map_err(Error::internal)?;
        Ok(text)
    }

    pub(crate) fn begin_request(&self) -> InFlight {
        self.0.in_flight.inc();
        InFlight(self.clone())
    }

    /// Counts a request that was answered, by names that are looked up.
    pub(crate) fn end_request(&self, labels: RequestLabels, took: Duration) {
        let route = RouteLabels { method: labels.method, route: labels.route.clone() };
        self.0.latency.get_or_create(&route).observe(took.as_secs_f64());
        self.0.requests.get_or_create(&labels).inc();
    }

    /// Where the calls of one route are counted.
    pub(crate) fn route(&self, method: &Method, route: &str) -> RouteMeter {
        let labels = RequestLabels::new(method, Some(route), 200);
        RouteMeter { metrics: self.clone(), labels, usual: OnceLock::new() }
    }

    pub(crate) fn count_shed(&self) {
        self.0.shed.inc();
    }

    pub(crate) fn count_run(&self, worker: &'static str, succeeded: bool) {
        let outcome = if succeeded { "success" } else { "failure" };
        self.0.worker_runs.get_or_create(&WorkerLabels { worker, outcome }).inc();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Counts the calls of one route. What succeeds, as most calls do, is counted without looking for
/// its series; that is there from the first call on.
#[derive(Debug)]
pub(crate) struct RouteMeter {
    metrics: Metrics,
    labels: RequestLabels,
    usual: OnceLock<(Histogram, Counter)>,
}

impl RouteMeter {
    pub(crate) fn count(&self, method: &Method, status: u16, took: Duration) {
        let Self { metrics, labels, usual } = self;
        // HEAD is answered by the route of GET, and counted as what it is.
        if status != labels.status || known(method) != labels.method {
            let labels = RequestLabels { method: known(method), status, ..labels.clone() };
            return metrics.end_request(labels, took);
        }
        let (latency, answered) = usual.get_or_init(|| {
            let route = RouteLabels { method: labels.method, route: labels.route.clone() };
            let latency = metrics.0.latency.get_or_create(&route).clone();
            let answered = metrics.0.requests.get_or_create(labels).clone();
            (latency, answered)
        });
        latency.observe(took.as_secs_f64());
        answered.inc();
    }
}

/// One request in the gauge; out of it when dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Metrics);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.dec();
    }
}

/// What the kernel says about this process, read when asked.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name: &str, help: &str, value: Option<i64>| -> fmt::Result {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        gauge("process_resident_memory_bytes", "Memory held in RAM", resident_bytes())?;
        gauge("process_open_fds", "Open file descriptors", open_descriptors())
    }
}

/// How well writes share commits: the ratio of the two is the size of a batch.
#[derive(Debug)]
struct WriteCollector(Db);

impl Collector for WriteCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.0.write_stats();
        for (name, help, value) in [
            ("db_commits", "Transactions made durable", stats.commits),
            ("db_commits_at_once", "Those of them that were one statement", stats.at_once),
            ("db_writes", "Writes that shared those transactions", stats.writes),
        ] {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn open_descriptors() -> Option<i64> {
    i64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::new(None, Vec::new());
        let _busy = metrics.begin_request();
        let labels = RequestLabels::new(&Method::GET, Some("/v1/tenants"), 200);
        metrics.end_request(labels, Duration::from_millis(3));
        let invented = Method::from_bytes(b"EVIL\x7e").unwrap();
        metrics.end_request(RequestLabels::new(&invented, None, 404), Duration::ZERO);
        metrics.count_shed();
        metrics.count_run("audit-seal", true);
        let text = metrics.encode().unwrap();
        for expected in [
            r#"falaj_http_requests_total{method="GET",route="/v1/tenants",status="200"} 1"#,
            r#"falaj_http_requests_total{method="(other)",route="(none)",status="404"} 1"#,
            r"falaj_http_requests_in_flight 1",
            r"falaj_http_requests_shed_total 1",
            r#"falaj_worker_runs_total{worker="audit-seal",outcome="success"} 1"#,
            r"falaj_process_resident_memory_bytes",
            r"# EOF",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}
