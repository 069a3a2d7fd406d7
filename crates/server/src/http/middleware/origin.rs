//! Which page sent the request, where a browser says so.
//!
//! Must hold: no reply ever carries `Access-Control-Allow-Origin`, so no other site can read one;
//! and no other site can cause a change, whatever the method and whatever the credential. The
//! check is by allow-list of the safe methods, not by a list of the dangerous ones.
//!
//! Not here: what a session cookie needs beyond this (`governance::identity::csrf`).

use falaj_base::{Error, Result, code};
use http::header::ORIGIN;
use http::uri::Authority;
use http::{HeaderMap, Method};

/// Pages whose requests may change something, besides our own.
#[derive(Clone, Debug)]
pub(crate) struct Origins {
    allowed: Vec<String>,
}

impl Origins {
    pub(crate) fn new(configured: &[String]) -> Self {
        let clean = |origin: &String| origin.trim().trim_end_matches('/').to_ascii_lowercase();
        Self { allowed: configured.iter().map(clean).collect() }
    }

    /// Refuses a change asked for by another site's page.
    pub(crate) fn check(
        &self,
        method: &Method,
        headers: &HeaderMap,
        host: &Authority,
        tls: bool,
    ) -> Result<()> {
        if is_safe(method) || self.is_same_site(headers, host, tls) {
            return Ok(());
        }
        Err(Error::new(&code::CROSS_SITE, "a page of another site may not cause changes here"))
    }

    fn is_same_site(&self, headers: &HeaderMap, host: &Authority, tls: bool) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
            return origins.next().is_none()
                && (text == own_origin(host, tls) || self.allowed.contains(&text));
        }
        // Programs send neither header; a browser that sends no Origin still sends this one.
        match headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => true,
            Some(_) => false,
        }
    }
}

/// Methods that change nothing, by definition.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn own_origin(host: &Authority, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let default_port = if tls { ":443" } else { ":80" };
    let host = host.as_str().to_ascii_lowercase();
    format!("{scheme}://{}", host.strip_suffix(default_port).unwrap_or(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_site_cannot_cause_a_change() {
        let origins = Origins::new(&["https://proxy.example.ae/".to_owned()]);
        let host: Authority = "falaj.example:8443".parse().unwrap();
        for (origin, fetch_site, expected) in [
            (None, None, true),
            (None, Some("same-origin"), true),
            (None, Some("none"), true),
            (None, Some("same-site"), false),
            (None, Some("cross-site"), false),
            (Some("https://falaj.example:8443"), None, true),
            (Some("https://falaj.example:8443"), Some("same-origin"), true),
            (Some("https://proxy.example.ae"), Some("cross-site"), true),
            (Some("null"), None, false),
            (Some("http://falaj.example:8443"), None, false),
            (Some("https://falaj.example"), None, false),
            (Some("https://falaj.example:8443.evil"), None, false),
            (Some("https://falaj.example.evil"), Some("none"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            if let Some(site) = fetch_site {
                headers.insert("sec-fetch-site", site.parse().unwrap());
            }
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let answer = origins.check(&method, &headers, &host, true);
                assert_eq!(answer.is_ok(), expected, "{method} {origin:?} {fetch_site:?}");
            }
            assert!(origins.check(&Method::GET, &headers, &host, true).is_ok());
        }
    }
}
