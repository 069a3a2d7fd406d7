//! One span, one access-log line and one set of numbers for each request. Lines that would say
//! nothing new are for those who ask for them: `telemetry.filter = "info,falaj::access=debug"`.
//!
//! Must hold: neither the query (it can carry an authorisation code) nor any header is written.

use std::sync::Arc;
use std::time::Instant;

use super::pipeline::Next;
use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use falaj_base::RequestInfo;
use tracing::{Instrument, Span, field};

use super::auth::AnsweredTo;
use crate::http::held::Held;
use crate::metrics::{Metrics, RequestLabels};
use crate::telemetry::continue_trace;

pub(crate) async fn watch(metrics: Arc<Metrics>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let source = request.extensions().get::<RequestInfo>().and_then(|info| info.source);
    let span = span_of(&request, route.as_deref());
    let in_flight = metrics.begin_request();

    let response = next.run(request).instrument(span.clone()).await;

    let (status, took) = (response.status().as_u16(), started.elapsed());
    span.record("http.response.status_code", status);
    metrics.end_request(RequestLabels::new(&method, route.as_deref(), status), took);
    let who = response.extensions().get::<AnsweredTo>().map(|AnsweredTo(id)| *id);
    let _entered = span.enter();
    macro_rules! say {
        ($level:ident) => {
            tracing::$level!(
                target: "falaj::access",
                method = method.as_str(),
                path,
                status,
                ms = took.as_secs_f64() * 1000.0,
                principal = who.map(field::display),
                source = source.map(field::display),
            )
        };
    }
    let routine = status == 200 && !is_grpc_refusal(&response);
    if routine && route.is_some_and(|route| is_asked_all_the_time(&route)) {
        say!(debug);
    } else {
        say!(info);
    }
    response.map(|body| Held::wrap(body, in_flight))
}

/// Balancers ask every few seconds and callers of models thousands of times a second: that all is
/// well is not news, and a line about it costs as much as a small model's answer. Who asked models
/// how often is on the audit log.
fn is_asked_all_the_time(route: &str) -> bool {
    ["/health/", "/v2/health/"].iter().any(|health| route.starts_with(health))
        || ["/infer", "/invocations", "/ModelInfer"].iter().any(|ask| route.ends_with(ask))
}

/// gRPC tells of a refusal in a header, under a status that is always 200.
fn is_grpc_refusal(response: &Response) -> bool {
    response.headers().get("grpc-status").is_some_and(|status| status != "0")
}

fn span_of(request: &Request, route: Option<&str>) -> Span {
    let method = request.method().as_str();
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {}", route.unwrap_or("(no route)")),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = field::Empty,
        id = request.extensions().get::<RequestInfo>().map(|info| field::display(info.id)),
    );
    continue_trace(&span, request.headers());
    span
}
