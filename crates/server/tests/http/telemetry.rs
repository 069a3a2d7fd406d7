//! Traces reach a collector, and none is left behind at the end.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use falaj_server::config::TelemetryConfig;
use falaj_server::telemetry::Telemetry;
use tokio::sync::mpsc;

use crate::port::{AT_MOST, Port, impatient};

// The exporter runs on the runtime that flushing waits for: it takes more than one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_span_is_sent() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let collect = post(move |body: Bytes| {
        let sender = sender.clone();
        async move { drop(sender.send(body)) }
    });
    let port = Port::open(&impatient(), Router::new().route("/v1/traces", collect)).await;
    let telemetry = Telemetry::install(&TelemetryConfig {
        otlp_endpoint: format!("http://{}/", port.address),
        ..TelemetryConfig::default()
    })
    .unwrap();
    tracing::info_span!("the last span").in_scope(|| tracing::info!("inside it"));
    telemetry.flush().await;
    let body = tokio::time::timeout(AT_MOST, received.recv()).await.unwrap().unwrap();
    let has = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("the last span") && has("falaj"));
}
