//! One span, one access-log line and one set of numbers for each request. Lines that would say
//! nothing new are for those who ask for them: `telemetry.filter = "info,falaj::access=debug"`.
//!
//! Must hold: neither the query (it can carry an authorisation code) nor any header is written.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use falaj_base::{PrincipalId, RequestInfo, code};
use falaj_serving::runtime::SPANS;
use falaj_web::{Answer, Told};
use http::{HeaderMap, Method, Uri};
use tracing::{Instrument, Span, field};

use crate::http::route::{Class, Pattern};
use crate::metrics::{InFlight, Metrics, RequestLabels};
use crate::telemetry::{continue_trace, under};

/// A request under observation, from its head to the head of its reply.
#[derive(Debug)]
pub(crate) struct Observed {
    started: Instant,
    method: Method,
    uri: Uri,
    route: Option<Pattern>,
    info: (falaj_base::RequestId, Option<IpAddr>),
    span: Span,
    in_flight: InFlight,
}

impl Observed {
    pub(crate) fn begin(
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
        route: Option<Pattern>,
        info: &RequestInfo,
        metrics: &Metrics,
    ) -> Self {
        Self {
            started: Instant::now(),
            method: method.clone(),
            uri: uri.clone(),
            span: span_of(method, headers, route.as_ref(), info),
            route,
            info: (info.id, info.source),
            in_flight: metrics.begin_request(),
        }
    }

    /// Does the work of the request: what is logged meanwhile says which it was.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        under(self.info.0, work.instrument(self.span.clone())).await
    }

    /// Tells what came of it. What is given back counts the request until its reply is sent.
    pub(crate) fn end(
        self,
        reply: Seen<'_>,
        who: Option<PrincipalId>,
        class: &Class,
        metrics: &Metrics,
    ) -> InFlight {
        let (status, took) = (reply.status, self.started.elapsed());
        self.span.record("http.response.status_code", status);
        if let Some(meter) = &class.meter {
            meter.count(&self.method, status, took);
        } else {
            let route = self.route.as_ref().map(Pattern::as_str);
            metrics.end_request(RequestLabels::new(&self.method, route, status), took);
        }
        let _entered = self.span.enter();
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: "falaj::access",
                    method = self.method.as_str(),
                    path = self.uri.path(),
                    status,
                    ms = took.as_secs_f64() * 1000.0,
                    principal = who.map(field::display),
                    source = self.info.1.map(field::display),
                )
            };
        }
        let well = status == 200 && !reply.is_grpc_refusal;
        // Refusals of somebody unknown are told of one by one: they may be guesses.
        let repeated = || who.is_some() && !is_first_of_its_second(reply);
        let routine = class.busy && (well || repeated());
        crate::telemetry::within(self.info.0, || if routine { say!(debug) } else { say!(info) });
        self.in_flight
    }
}

/// What is looked at of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    status: u16,
    is_grpc_refusal: bool,
    told: Option<&'a Told>,
}

impl<'a> Seen<'a> {
    pub(crate) fn of(response: &'a Response) -> Self {
        let told = response.extensions().get::<Told>();
        let is_grpc_refusal = is_grpc_refusal(response);
        Self { status: response.status().as_u16(), is_grpc_refusal, told }
    }

    /// That of a call on the short way.
    pub(crate) fn of_answer(answer: &'a Answer) -> Self {
        match answer {
            Answer::Plain(_) => Self { status: 200, is_grpc_refusal: false, told: None },
            Answer::Other(response) => Self::of(response),
        }
    }

    /// Whether it refuses what could be answered when there is less to do.
    pub(crate) fn is_for_want_of_room(self) -> bool {
        let codes = [&code::OVERLOADED, &code::RATE_LIMITED];
        self.told.is_some_and(|told| codes.contains(&told.code))
    }
}

/// The second in which a refusal for want of room was told of last.
static TOLD_IN: AtomicU64 = AtomicU64::new(0);

/// Whether a reply is news: anything but a refusal for want of room, and of those one in a second. A line
/// for each would cost as much as the refusal, just when there is no room; how many there were is
/// counted.
fn is_first_of_its_second(reply: Seen<'_>) -> bool {
    if !reply.is_for_want_of_room() {
        return true;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    TOLD_IN.swap(now, Ordering::Relaxed) != now
}

/// gRPC tells of a refusal in a header, under a status that is always 200.
fn is_grpc_refusal(response: &Response) -> bool {
    response.headers().get("grpc-status").is_some_and(|status| status != "0")
}

/// For traces alone: lines name the request by themselves.
fn span_of(
    method: &Method,
    headers: &HeaderMap,
    route: Option<&Pattern>,
    info: &RequestInfo,
) -> Span {
    let method = method.as_str();
    let route = route.map(Pattern::as_str);
    let span = tracing::debug_span!(
        target: SPANS,
        "request",
        otel.name = format!("{method} {}", route.unwrap_or("(no route)")),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = field::Empty,
        id = field::display(info.id),
    );
    continue_trace(&span, headers);
    span
}

#[cfg(test)]
mod tests {
    use falaj_base::Error;
    use falaj_web::problem_response;

    use super::*;

    #[test]
    fn only_refusals_for_want_of_room_are_such() {
        for (code, expected) in [
            (&code::OVERLOADED, true),
            (&code::RATE_LIMITED, true),
            (&code::UNAVAILABLE, false),
            (&code::SHUTTING_DOWN, false),
            (&code::MALFORMED_BODY, false),
        ] {
            let answer = Answer::Other(problem_response(&Error::new(code, "no")));
            assert_eq!(Seen::of_answer(&answer).is_for_want_of_room(), expected, "{code:?}");
        }
        assert!(!Seen::of_answer(&Answer::Other(Response::default())).is_for_want_of_room());
    }
}
