//! One spelling per route: a path that is not canonical is refused, never repaired.
//!
//! Whatever stands between a client and a handler (a proxy, a router, an authoriser) may read
//! `//`, `/./`, `%2e` or `;v=1` differently. Where only one spelling exists, they cannot disagree.

use falaj_base::{Error, Result, code};
use http::Uri;

/// Refuses a path with a second spelling. Dot-dot, backslashes, control characters and broken
/// encodings are no slips: they are answered as bad input.
pub(crate) fn check(uri: &Uri, max_size: usize) -> Result<()> {
    let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
    if whole.len() > max_size {
        let message = format!(
            "the path and query are {} bytes; allowed: {max_size} (`limits.max_uri_size`)",
            whole.len()
        );
        return Err(Error::new(&code::TOO_LARGE, message));
    }
    match verdict(uri.path()) {
        Verdict::Canonical => Ok(()),
        Verdict::OtherSpelling => {
            Err(Error::new(&code::NOT_FOUND, "the path is not in its canonical spelling"))
        }
        Verdict::Hostile => Err(Error::invalid(
            "path",
            uri.path(),
            "printable UTF-8 segments without `..`, `\\` or encoded separators",
        )),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Canonical,
    OtherSpelling,
    Hostile,
}

/// Whether a path is so plain that no segment needs a closer look: letters, digits and a few signs
/// that mean nothing, and no segment is empty or begins with a dot. Most are.
fn is_plain(path: &str) -> bool {
    let mut begins = false;
    for (place, byte) in path.bytes().enumerate() {
        let plain = match byte {
            b'/' => !begins,
            b'.' => !begins && place > 0,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b':' => place > 0,
            _ => false,
        };
        if !plain {
            return false;
        }
        begins = byte == b'/';
    }
    !begins && !path.is_empty()
}

fn verdict(path: &str) -> Verdict {
    if is_plain(path) {
        return Verdict::Canonical;
    }
    slowly(path)
}

fn slowly(path: &str) -> Verdict {
    let Some(rest) = path.strip_prefix('/') else { return Verdict::Hostile };
    if rest.is_empty() {
        return Verdict::Canonical;
    }
    rest.split('/').map(segment).max_by_key(|verdict| *verdict as u8).unwrap_or(Verdict::Canonical)
}

fn segment(text: &str) -> Verdict {
    let Some(decoded) = decode(text) else { return Verdict::Hostile };
    let Ok(decoded) = std::str::from_utf8(&decoded) else { return Verdict::Hostile };
    let hostile = decoded == ".."
        || decoded.chars().any(|c| matches!(c, '/' | '\\') || c.is_control())
        || decode(decoded).is_some_and(|twice| twice != decoded.as_bytes());
    if hostile {
        return Verdict::Hostile;
    }
    let escaped_dot = text.to_ascii_lowercase().contains("%2e");
    if matches!(decoded, "" | ".") || escaped_dot || decoded.contains(';') {
        return Verdict::OtherSpelling;
    }
    Verdict::Canonical
}

/// Undoes percent-encoding once; none if it is broken.
fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let high = char::from(*bytes.get(at + 1)?).to_digit(16)?;
            let low = char::from(*bytes.get(at + 2)?).to_digit(16)?;
            decoded.push(u8::try_from(high * 16 + low).ok()?);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_one_spelling() {
        use Verdict::{Canonical, Hostile, OtherSpelling};
        for (path, expected) in [
            ("/", Canonical),
            ("/v1/tenants", Canonical),
            ("/v1/tenants/acme/projects/a-b", Canonical),
            ("/v1/users/mona@example.ae", Canonical),
            ("/v1/objects/report%20final.csv", Canonical),
            ("/v1/objects/50%25", Canonical),
            ("/v1/objects/%D9%85.bin", Canonical),
            ("/v1/objects/.hidden", Canonical),
            ("/v1/objects/a..b", Canonical),
            ("//v1/tenants", OtherSpelling),
            ("/v1//tenants", OtherSpelling),
            ("/v1/./tenants", OtherSpelling),
            ("/v1/tenants/", OtherSpelling),
            ("/v1/tenants;a=b", OtherSpelling),
            ("/v1/tenants%3Ba=b", OtherSpelling),
            ("/v1/%2e/tenants", OtherSpelling),
            ("/v1/tenants/a%2Eb", OtherSpelling),
            ("", Hostile),
            ("v1", Hostile),
            ("/v1/../admin", Hostile),
            ("/v1/%2e%2e/admin", Hostile),
            ("/v1/..%2fadmin", Hostile),
            ("/v1/a%2Fb", Hostile),
            ("/v1/a%5cb", Hostile),
            ("/v1/a\\b", Hostile),
            ("/v1/a%00b", Hostile),
            ("/v1/a%0ab", Hostile),
            ("/v1/%252e%252e/x", Hostile),
            ("/v1/%ff", Hostile),
            ("/v1/%zz", Hostile),
            ("/v1/%4", Hostile),
        ] {
            assert_eq!(verdict(path), expected, "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_looks_plain_is_canonical_on_a_closer_look_too(path in "[/.%;:a2eE_\\\\é-]{0,12}") {
            proptest::prop_assert!(!is_plain(&path) || slowly(&path) == Verdict::Canonical);
        }
    }

    #[test]
    fn a_long_uri_names_its_limit() {
        let uri: Uri = format!("/v1/x?q={}", "y".repeat(300)).parse().unwrap();
        let error = check(&uri, 256).unwrap_err();
        assert_eq!(error.code(), &code::TOO_LARGE);
        assert!(error.message().contains("limits.max_uri_size"));
    }
}
