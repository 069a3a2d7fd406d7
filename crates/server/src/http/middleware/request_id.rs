//! A name for each request, given by us: it stands in the log, the audit entry and the reply.
//!
//! A caller's own `x-request-id` is not taken over: it could forge another request's trail.

use std::net::IpAddr;

use falaj_base::id::frequent;
use falaj_base::{RequestId, RequestInfo};
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names a request that came from there.
pub(crate) fn info(trace: Option<String>, source: IpAddr) -> RequestInfo {
    RequestInfo {
        id: RequestId::from_uuid(frequent()),
        source: Some(source.to_canonical()),
        trace,
        idempotency_key: None,
        fingerprint: None,
    }
}

/// Puts the name of a request on its reply.
pub(crate) fn tell(id: RequestId, headers: &mut HeaderMap) {
    if let Ok(text) = HeaderValue::from_bytes(&text(id)) {
        headers.insert(&X_REQUEST_ID, text);
    }
}

/// The name of a request as it is written.
pub(crate) fn text(id: RequestId) -> [u8; RequestId::PREFIX.len() + 33] {
    let mut text = [0; RequestId::PREFIX.len() + 33];
    let (prefix, digits) = text.split_at_mut(RequestId::PREFIX.len() + 1);
    prefix[..RequestId::PREFIX.len()].copy_from_slice(RequestId::PREFIX.as_bytes());
    prefix[RequestId::PREFIX.len()] = b'_';
    id.as_uuid().simple().encode_lower(digits);
    text
}

/// The trace id of a W3C `traceparent`, if it is a well-formed one.
pub(crate) fn trace_id(headers: &HeaderMap) -> Option<String> {
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
