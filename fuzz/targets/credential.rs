//! Whatever stands in Authorization, Cookie and Origin.
#![no_main]

use falaj_governance::identity::credential::Credential;
use falaj_governance::identity::origin::Origin;
use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&[u8], &[u8])| {
    let (authorization, cookie) = data;
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(authorization) {
        headers.insert(header::AUTHORIZATION, value);
    }
    if let Ok(value) = HeaderValue::from_bytes(cookie) {
        headers.insert(header::COOKIE, value);
    }
    if let Ok(credential) = Credential::of(&headers) {
        // What is printed about a credential never holds the credential.
        let shown = format!("{credential:?}");
        assert!(shown.len() < 64, "{shown}");
    }
    if let Ok(text) = std::str::from_utf8(authorization) {
        let _ = Origin::parse(text);
    }
});
