//! Logs to stderr, and traces to an OpenTelemetry collector where one is configured.
//!
//! Must hold: what is still in memory is sent before the process ends ([`Telemetry::flush`]).

mod current;

use std::time::Duration;

use falaj_base::quantity::HumanDuration;
use falaj_base::{Error, Result, code};
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::runtime;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use opentelemetry_sdk::trace::{BatchConfigBuilder, Sampler, SdkTracerProvider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{Directive, EnvFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use current::Named;
pub(crate) use current::{under, within};

/// Logs and traces.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// What to log: a level, or levels by target, such as `info,falaj_store=debug`.
    pub filter: String,
    /// How to write log lines to stderr.
    pub format: LogFormat,
    /// Where to send traces: the base URL of an OTLP/HTTP collector, such as
    /// `http://127.0.0.1:4318`. Empty sends none.
    pub otlp_endpoint: String,
    /// The part of traces to keep, from 0 to 1, where the caller has not decided.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
    /// Spans waiting to be sent at most; further ones are dropped.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_queued_spans: usize,
    /// How long sending may take, also at the end.
    pub export_timeout: HumanDuration,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            format: LogFormat::Text,
            otlp_endpoint: String::new(),
            sample_ratio: 1.0,
            max_queued_spans: 4096,
            export_timeout: HumanDuration::from_secs(5),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Keeps the exporter alive, and empties it at the end.
#[derive(Debug)]
#[must_use = "flush it before the process ends, or the last traces are lost"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
    timeout: Duration,
}

impl Telemetry {
    /// Installs the logger of the whole process; to be called once, inside the async runtime.
    pub fn install(config: &TelemetryConfig) -> Result<Self> {
        let filter = EnvFilter::builder()
            .parse(&config.filter)
            .map_err(|cause| invalid("telemetry.filter", &config.filter, cause))?;
        let provider = provider(config)?;
        let filter = match &provider {
            Some(_) => filter.add_directive(spans()?),
            None => filter,
        };
        let traces = provider
            .as_ref()
            .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("falaj")));
        Registry::default()
            .with(lines(config.format))
            .with(traces)
            .with(filter)
            .try_init()
            .map_err(Error::internal)?;
        Ok(Self { provider, timeout: config.export_timeout.get() })
    }

    /// Sends what is left.
    pub async fn flush(self) {
        let Some(provider) = self.provider else { return };
        let timeout = self.timeout;
        // Shutting down waits for the exporter, which runs on this very runtime.
        let done = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(timeout));
        if let Ok(Err(error)) = done.await {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let text = fmt::format().with_ansi(colour);
            lines.with_ansi(colour).event_format(Named { lines: text, format }).boxed()
        }
        LogFormat::Json => {
            let json = fmt::format().json().flatten_event(true);
            lines.json().event_format(Named { lines: json, format }).boxed()
        }
    }
}

/// Lets the spans through that are for traces alone.
fn spans() -> Result<Directive> {
    format!("{}=debug", falaj_serving::runtime::SPANS).parse().map_err(Error::internal)
}

fn provider(config: &TelemetryConfig) -> Result<Option<SdkTracerProvider>> {
    if config.otlp_endpoint.is_empty() {
        return Ok(None);
    }
    let endpoint = format!("{}/v1/traces", config.otlp_endpoint.trim_end_matches('/'));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_timeout(config.export_timeout.get())
        .build()
        .map_err(|cause| invalid("telemetry.otlp_endpoint", &config.otlp_endpoint, cause))?;
    let batches = BatchConfigBuilder::default().with_max_queue_size(config.max_queued_spans);
    let processor = BatchSpanProcessor::builder(exporter, runtime::Tokio)
        .with_batch_config(batches.build())
        .build();
    let sampler = Sampler::TraceIdRatioBased(config.sample_ratio);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_sampler(Sampler::ParentBased(Box::new(sampler)))
        .with_resource(Resource::builder().with_service_name("falaj").build())
        .build();
    Ok(Some(provider))
}

fn invalid(
    field: &str,
    value: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let cause = cause.into();
    let message = format!("`{field}` is {value:?}: {cause}");
    Error::new(&code::INVALID_CONFIG, message).at(field).caused_by(cause)
}

/// Makes `span` a child of the caller's trace, if the request came with one.
pub(crate) fn continue_trace(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let context = TraceContextPropagator::new().extract(&HeaderFields(headers));
    // Without an exporter the span has no place for a parent, and needs none.
    let _ = span.set_parent(context);
}

struct HeaderFields<'a>(&'a HeaderMap);

impl Extractor for HeaderFields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
