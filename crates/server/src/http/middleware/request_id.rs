//! A name for each request, given by us: it stands in the log, the audit entry and the reply.
//!
//! A caller's own `x-request-id` is not taken over: it could forge another request's trail.

use super::pipeline::Next;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{RequestId, RequestInfo};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::connection::Peer;

pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Puts a [`RequestInfo`] beside the request and its id on the reply.
pub(crate) async fn assign(mut request: Request, next: Next) -> Response {
    let info = RequestInfo {
        id: RequestId::new(),
        source: request.extensions().get::<Peer>().map(|peer| peer.address.ip().to_canonical()),
        trace: trace_id(request.headers()),
        idempotency_key: None,
        fingerprint: None,
    };
    let id = HeaderValue::from_str(&info.id.to_string());
    request.extensions_mut().insert(info);
    let mut response = next.run(request).await;
    if let Ok(id) = id {
        response.headers_mut().insert(X_REQUEST_ID.clone(), id);
    }
    response
}

/// The trace id of a W3C `traceparent`, if it is a well-formed one.
fn trace_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let well_formed = hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && hex(parent, 16)
        && hex(flags, 2)
        && trace.bytes().any(|b| b != b'0');
    well_formed.then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_trace_is_believed() {
        let good = "0af7651916cd43dd8448eb211c80319c";
        for (text, expected) in [
            (format!("00-{good}-b7ad6b7169203331-01"), true),
            (format!("cc-{good}-b7ad6b7169203331-01-later"), true),
            (format!("ff-{good}-b7ad6b7169203331-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (format!("00-{}-b7ad6b7169203331-01", good.to_uppercase()), false),
            (format!("00-{good}"), false),
            ("x".repeat(4000), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            assert_eq!(trace_id(&headers).is_some(), expected, "{text}");
        }
    }
}
