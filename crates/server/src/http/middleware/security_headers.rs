//! What every reply tells a browser: do not guess, do not frame, do not tell, do not keep.
//!
//! A handler that serves a page may set its own policy; what it sets is left alone.

use super::pipeline::Next;
use axum::extract::Request;
use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue};

use crate::http::connection::Peer;

static ALWAYS: [(HeaderName, &str); 7] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Two years, as browsers' preload lists ask.
const HSTS: &str = "max-age=63072000";

/// How many more come on the way out: made room for once, rather than for each.
const LATER: usize = 4;

/// Adds the headers a handler has not set itself.
pub(crate) async fn add(request: Request, next: Next) -> Response {
    let tls = request.extensions().get::<Peer>().is_some_and(|peer| peer.tls);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.reserve(ALWAYS.len() + LATER);
    for (name, value) in &ALWAYS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if tls {
        headers.entry(STRICT_TRANSPORT_SECURITY).or_insert(HeaderValue::from_static(HSTS));
    }
    response
}
