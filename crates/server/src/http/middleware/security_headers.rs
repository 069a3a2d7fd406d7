//! What every reply tells a browser: do not guess, do not frame, do not tell, do not keep.
//!
//! A handler that serves a page may set its own policy; what it sets is left alone.

use std::sync::LazyLock;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::request_id::X_REQUEST_ID;

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

/// The headers of a reply that says nothing of its own: copied as a whole, which takes a fraction of
/// putting each in. The request's name has its place among them.
static PLAIN: LazyLock<HeaderMap> = LazyLock::new(|| {
    let all = ALWAYS.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
    all.chain([(X_REQUEST_ID.clone(), HeaderValue::from_static(""))]).collect()
});

/// Adds the headers a handler has not set itself.
pub(crate) fn add(headers: &mut HeaderMap, tls: bool) {
    let mut all = PLAIN.clone();
    if tls {
        all.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(HSTS));
    }
    // What a handler set comes over what is always there.
    all.extend(std::mem::take(headers));
    *headers = all;
}

/// The same as lines, for a reply that sets none of these itself: all but the request's name.
pub(crate) fn written(tls: bool) -> String {
    let mut headers = HeaderMap::new();
    add(&mut headers, tls);
    headers.remove(&X_REQUEST_ID);
    let lines = headers.iter().map(|(name, value)| {
        let value = value.to_str().unwrap_or_default();
        format!("{name}: {value}\r\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_handler_set_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
        headers.append("set-cookie", HeaderValue::from_static("a=1"));
        headers.append("set-cookie", HeaderValue::from_static("b=2"));
        add(&mut headers, true);
        assert_eq!(headers.get_all(CACHE_CONTROL).iter().collect::<Vec<_>>(), ["private"]);
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(headers[STRICT_TRANSPORT_SECURITY], HSTS);
        for (name, value) in &ALWAYS {
            assert!(headers[name] == *value || *name == CACHE_CONTROL, "{name}");
        }
        let mut plain = HeaderMap::new();
        add(&mut plain, false);
        assert!(!plain.contains_key(STRICT_TRANSPORT_SECURITY));
    }
}
