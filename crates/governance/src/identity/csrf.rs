//! The guard against requests that another site makes with our cookie.
//!
//! Must hold: every method that is not known to be safe is guarded, so a new one is guarded too.
//! A bearer token needs no guard, since no browser adds one by itself. A cookie does, and so does
//! a Basic password that a browser has remembered.

use falaj_base::{Error, Result, code};
use http::{HeaderMap, Method};

use super::origin::Origin;
use super::session::cookie;

/// The header a page of ours adds to every call that changes something; a foreign page cannot add
/// it without asking first, and the answer to asking is no.
pub const CSRF_HEADER: &str = "x-falaj-csrf";

/// For the server's middleware: refuses an unsafe, cookie-carrying request that does not prove it
/// comes from a page of ours. `host` is the `Host` header or the HTTP/2 authority.
pub fn check(
    method: &Method,
    host: Option<&str>,
    headers: &HeaderMap,
    public: Option<&Origin>,
) -> Result<()> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    if !cookie::is_present(headers) {
        // Programs that speak Basic name no origin; a browser always does.
        let from_browser = headers.contains_key("origin") || headers.contains_key("sec-fetch-site");
        return if from_browser && is_basic(headers) {
            same_origin(host, headers, public)
        } else {
            Ok(())
        };
    }
    if single(headers, CSRF_HEADER) != Some("1") {
        return Err(refused("the header `x-falaj-csrf: 1` is missing"));
    }
    same_origin(host, headers, public)
}

/// For forms, which cannot add a header: the browser must say that the page was ours.
pub fn same_origin(host: Option<&str>, headers: &HeaderMap, public: Option<&Origin>) -> Result<()> {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes() == b"same-origin");
    let origin = headers
        .contains_key("origin")
        .then(|| single(headers, "origin").is_some_and(|text| is_ours(text, host, public)));
    match (site, origin) {
        // Neither header: not a browser of this decade. A cookie needs a browser.
        (None, None) => Err(refused("the request names neither its origin nor its site")),
        (Some(false), _) | (_, Some(false)) => Err(refused("the request comes from another site")),
        _ => Ok(()),
    }
}

fn is_ours(text: &str, host: Option<&str>, public: Option<&Origin>) -> bool {
    let Some(origin) = Origin::parse(text) else { return false };
    if public == Some(&origin) {
        return true;
    }
    // Without a configured address the one the request was sent to counts. The plain-HTTP twin of
    // an HTTPS page is another site, so plain HTTP is believed on the machine itself only.
    let trusted = origin.is_secure() || origin.is_loopback();
    trusted
        && public.is_none_or(|_| origin.is_loopback())
        && host.and_then(|host| Origin::new(origin.is_secure(), host)).as_ref() == Some(&origin)
}

fn is_basic(headers: &HeaderMap) -> bool {
    let basic = |value: &http::HeaderValue| {
        value.as_bytes().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic"))
    };
    headers.get_all(http::header::AUTHORIZATION).iter().any(basic)
}

/// The value of a header that must not be given twice.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

fn refused(why: &str) -> Error {
    Error::new(&code::CROSS_SITE, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    const COOKIE: (&str, &str) = ("cookie", "__Host-falaj-session=x");
    const HOST: Option<&str> = Some("falaj.example");

    #[test]
    fn unsafe_methods_with_a_cookie_need_the_header_and_our_origin() {
        let good = [COOKIE, (CSRF_HEADER, "1"), ("sec-fetch-site", "same-origin")];
        for method in ["POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PURGE", "post"] {
            let method = method.parse().unwrap();
            assert!(check(&method, HOST, &headers(&good), None).is_ok());
            for bad in [&good[..1], &good[..2], &[COOKIE, good[2]][..]] {
                let error = check(&method, HOST, &headers(bad), None).unwrap_err();
                assert_eq!(error.code(), &code::CROSS_SITE, "{method} {bad:?}");
            }
        }
        assert!(check(&Method::GET, HOST, &headers(&[COOKIE]), None).is_ok());
        assert!(check(&Method::POST, HOST, &headers(&[]), None).is_ok());
    }

    #[test]
    fn a_password_remembered_by_the_browser_is_guarded_and_a_bearer_token_is_not() {
        let with = |scheme: &str, site: &str| {
            let value = format!("{scheme} xyz");
            let map = headers(&[("authorization", &value), ("sec-fetch-site", site)]);
            check(&Method::POST, HOST, &map, None).is_ok()
        };
        assert!(!with("bAsic", "cross-site") && with("Basic", "same-origin"));
        assert!(with("Bearer", "cross-site"));
        let program = headers(&[("authorization", "Basic xyz")]);
        assert!(check(&Method::POST, HOST, &program, None).is_ok());
    }

    #[test]
    fn only_our_own_origin_counts() {
        let public = Origin::parse("https://falaj.example").unwrap();
        for (origin, without, with_public) in [
            ("https://falaj.example", true, true),
            ("https://falaj.example:443", true, true),
            ("http://falaj.example", false, false),
            ("https://falaj.example:8443", false, false),
            ("https://falaj.example.evil", false, false),
            ("https://evil.example", false, false),
            ("null", false, false),
            ("", false, false),
        ] {
            let map = headers(&[("origin", origin)]);
            assert_eq!(same_origin(HOST, &map, None).is_ok(), without, "{origin}");
            assert_eq!(same_origin(HOST, &map, Some(&public)).is_ok(), with_public, "{origin}");
        }
        let loopback = headers(&[("origin", "http://127.0.0.1:7470")]);
        assert!(same_origin(Some("127.0.0.1:7470"), &loopback, None).is_ok());
        assert!(same_origin(Some("127.0.0.1:7471"), &loopback, None).is_err());
    }

    #[test]
    fn both_headers_must_agree_and_neither_is_not_enough() {
        let site = |site| ("sec-fetch-site", site);
        let ours = ("origin", "https://falaj.example");
        for bad in ["cross-site", "same-site", "none", "same-origin, same-origin"] {
            assert!(same_origin(HOST, &headers(&[site(bad), ours]), None).is_err(), "{bad}");
        }
        let foreign = headers(&[site("same-origin"), ("origin", "https://evil.example")]);
        assert!(same_origin(HOST, &foreign, None).is_err());
        assert!(same_origin(HOST, &headers(&[ours, ours]), None).is_err());
        assert!(same_origin(HOST, &headers(&[]), None).is_err());
        assert!(same_origin(HOST, &headers(&[site("same-origin"), ours]), None).is_ok());
    }
}
