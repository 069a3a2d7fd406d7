//! Where this server connects because somebody named the place: webhooks, callbacks, models on
//! other servers.
//!
//! Must hold:
//! - Only hosts that the operator listed, by the scheme that the list says.
//! - The address is looked at when it is connected to: one that is not public is refused unless
//!   private ones are allowed, whatever a name resolves to at that moment.
//!
//! Not here: sending; and that no redirect is followed and no proxy used, which is whoever sends.

mod address;

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

pub use address::is_public;

/// The hosts that may be connected to.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    /// `host`, `*.parent` or `*`; only HTTPS, unless an entry begins with `http://`.
    pub hosts: Vec<String>,
    /// Whether they may have addresses that are not public.
    pub private: bool,
}

/// Why a place is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Neither HTTP nor HTTPS.
    Scheme,
    /// A user name or a password stands in the URL.
    Credentials,
    /// The host is not listed, or not by this scheme.
    Host,
    /// The URL names an address that is not public.
    Private,
}

impl Egress {
    /// Whether the URL is one that may be connected to. What its name resolves to is looked at
    /// when that happens, by [`Egress::resolver`].
    pub fn check(&self, url: &Url) -> Result<(), Refusal> {
        let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
        if !matches!(scheme, "http" | "https") {
            return Err(Refusal::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Credentials);
        }
        if !self.hosts.iter().any(|entry| covers(entry, scheme, host)) {
            return Err(Refusal::Host);
        }
        let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if literal.is_ok_and(|address| !self.private && !is_public(address)) {
            return Err(Refusal::Private);
        }
        Ok(())
    }

    /// Looks names up for a client that connects only where it may.
    #[must_use]
    pub fn resolver(&self) -> Guarded {
        Guarded { private: self.private }
    }
}

/// Whether an entry of the list allows a host by a scheme.
fn covers(entry: &str, scheme: &str, host: &str) -> bool {
    let entry = entry.trim().trim_end_matches('/').to_ascii_lowercase();
    let (wanted, pattern) = entry.split_once("://").unwrap_or(("https", &entry));
    if wanted != scheme {
        return false;
    }
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    match pattern.trim_matches(['[', ']']) {
        "*" => true,
        pattern => match pattern.strip_prefix("*.") {
            Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
            None => host == pattern,
        },
    }
}

/// Looks names up and gives out only addresses that may be connected to: what is checked is what is
/// used, so a name cannot change its mind in between.
#[derive(Clone, Copy, Debug)]
pub struct Guarded {
    private: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found
                .filter(|address: &SocketAddr| private || is_public(address.ip().to_canonical()))
                .collect();
            if found.is_empty() {
                let text = format!("{} has no public address", name.as_str());
                return Err(text.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_reason() {
        let hosts = ["a.example", "*.b.example", "http://c.example", "10.0.0.1"];
        let egress =
            Egress { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), private: false };
        for (url, wanted) in [
            ("https://a.example/x", Ok(())),
            ("https://x.b.example:8443/", Ok(())),
            ("http://c.example/", Ok(())),
            ("ftp://a.example/", Err(Refusal::Scheme)),
            ("https://me@a.example/", Err(Refusal::Credentials)),
            ("http://a.example/", Err(Refusal::Host)),
            ("https://b.example/", Err(Refusal::Host)),
            ("https://10.0.0.1/", Err(Refusal::Private)),
        ] {
            assert_eq!(egress.check(&url.parse().unwrap()), wanted, "{url}");
        }
        let open = Egress { private: true, ..egress };
        assert_eq!(open.check(&"https://10.0.0.1/".parse().unwrap()), Ok(()));
        let nothing = Egress::default().check(&"https://a.example/".parse().unwrap());
        assert_eq!(nothing, Err(Refusal::Host));
    }
}
