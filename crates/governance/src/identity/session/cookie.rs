//! Cookies: reading ours out of a request, and writing them so that no other site, subdomain or
//! plain-text page can set or read them (`__Host-` enforces it in the browser).

use http::HeaderMap;
use http::header::COOKIE;

/// The browser session.
pub const SESSION: &str = "__Host-falaj-session";
/// A sign-in under way at an OIDC provider.
pub const LOGIN: &str = "__Host-falaj-login";

/// Why a cookie could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// The value of the cookie `name`; two of the same name are ambiguous, since one may be planted.
pub fn read<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Ambiguous> {
    let mut found = None;
    for header in headers.get_all(COOKIE) {
        // A header that is not text may hide a second cookie of ours.
        let text = header.to_str().map_err(|_| Ambiguous)?;
        for pair in text.split(';') {
            let Some((key, value)) = pair.trim_matches(' ').split_once('=') else { continue };
            if key == name && found.replace(value).is_some() {
                return Err(Ambiguous);
            }
        }
    }
    Ok(found)
}

/// Whether the request carries anything that could count as our session.
#[must_use]
pub fn is_present(headers: &HeaderMap) -> bool {
    !matches!(read(headers, SESSION), Ok(None))
}

/// A `Set-Cookie` value. It lives as long as the browser; the server decides when it ends.
#[must_use]
pub fn set(name: &str, value: &str) -> String {
    format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax")
}

/// A `Set-Cookie` value that removes the cookie.
#[must_use]
pub fn clear(name: &str) -> String {
    format!("{name}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cookie_of_ours_is_found_and_two_are_refused() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["a=b"][..], Ok(None)),
            (&["__Host-falaj-session=x"][..], Ok(Some("x"))),
            (&["a=b; __Host-falaj-session=x;c=d"][..], Ok(Some("x"))),
            (&["a=b", "__Host-falaj-session=x"][..], Ok(Some("x"))),
            (&["__Host-falaj-session=x; __Host-falaj-session=y"][..], Err(Ambiguous)),
            (&["__Host-falaj-session=x", "__Host-falaj-session=x"][..], Err(Ambiguous)),
            (&["__host-falaj-session=x"][..], Ok(None)),
            (&["falaj-session=x; x__Host-falaj-session=y"][..], Ok(None)),
            (&["__Host-falaj-session"][..], Ok(None)),
            (&["a=\u{e9}; __Host-falaj-session=x"][..], Err(Ambiguous)),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(COOKIE, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            assert_eq!(read(&headers, SESSION), expected, "{values:?}");
        }
    }
}
