//! A web origin: scheme, host and port. Two pages may trust each other only if theirs are equal.

use std::fmt;
use std::net::IpAddr;

/// A scheme, host and port, in the one spelling a browser sends: lower case, no default port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    secure: bool,
    /// Host and, unless it is the scheme's default, port.
    authority: String,
}

impl Origin {
    /// Reads `https://host[:port]`; anything else (`null`, a path, user information) is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (secure, authority) = match text.split_once("://")? {
            ("https", rest) => (true, rest),
            ("http", rest) => (false, rest),
            _ => return None,
        };
        Self::new(secure, authority)
    }

    /// The origin of a page served at this `Host`.
    #[must_use]
    pub fn new(secure: bool, authority: &str) -> Option<Self> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        if authority.is_empty() || authority.len() > 261 || !authority.bytes().all(good) {
            return None;
        }
        let default = if secure { ":443" } else { ":80" };
        let authority = authority.to_ascii_lowercase();
        let bracketed_only = authority.ends_with(']');
        let trimmed = match authority.strip_suffix(default) {
            Some(host) if !bracketed_only => host.to_owned(),
            _ => authority,
        };
        if host_of(&trimmed).is_empty() {
            return None;
        }
        Some(Self { secure, authority: trimmed })
    }

    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// Whether this is the machine itself, where plain HTTP never leaves the host.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = host_of(&self.authority);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// The host part of `host[:port]`, without the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map_or("", |(host, _)| host);
    }
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_spelling() {
        for (text, expected) in [
            ("https://falaj.example", Some("https://falaj.example")),
            ("https://FALAJ.example:443", Some("https://falaj.example")),
            ("http://falaj.example:443", Some("http://falaj.example:443")),
            ("http://127.0.0.1:7470", Some("http://127.0.0.1:7470")),
            ("http://[::1]:80", Some("http://[::1]")),
            ("null", None),
            ("https://", None),
            ("https://:443", None),
            ("https://falaj.example/", None),
            ("https://user@falaj.example", None),
            ("ftp://falaj.example", None),
            ("https://falaj.example\u{0430}", None),
        ] {
            let found = Origin::parse(text).map(|origin| origin.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        assert!(Origin::parse("http://[::1]:9").unwrap().is_loopback());
        assert!(Origin::parse("http://localhost:9").unwrap().is_loopback());
        assert!(!Origin::parse("http://localhost.evil").unwrap().is_loopback());
    }
}
