//! Whom the request believes it is talking to.
//!
//! A page on another site can make its own name resolve to this machine (DNS rebinding) and then
//! speak to it as to itself; only the `Host` still carries the foreign name. So names are
//! allow-listed. An address needs no list: no name was resolved to reach it.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use falaj_base::{Error, Result, code};
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

use crate::http::connection::Peer;

/// The names this server answers to.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(configured: &[String]) -> Self {
        let names = configured.iter().map(|name| name.trim().to_ascii_lowercase());
        Self { names: std::iter::once("localhost".to_owned()).chain(names).collect() }
    }

    /// Returns the authority the request names, if it is ours.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap, peer: &Peer) -> Result<Authority> {
        let named = named(uri, headers)?;
        if self.is_ours(&named, peer) {
            return Ok(named);
        }
        let message = "the request is addressed to a name that is not in `server.allowed_hosts`";
        Err(Error::new(&code::CROSS_SITE, message).at("host"))
    }

    fn is_ours(&self, named: &Authority, peer: &Peer) -> bool {
        let host = named.host().to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) => {
                let local = peer.local.ip().to_canonical();
                address.is_loopback()
                    || address.to_canonical() == local
                    || self.names.iter().any(|name| name == bare)
            }
            Err(_) => self.names.contains(&host),
        }
    }
}

/// The host that a connection named last and was found to be ours: most name one for ever.
#[derive(Debug, Default)]
pub(crate) struct LastHost(Mutex<Option<(HeaderValue, Authority)>>);

impl LastHost {
    /// The host of a request, if it is the same again and named once.
    pub(crate) fn known(&self, uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
        let mut given = headers.get_all(HOST).iter();
        let (value, None, None) = (given.next()?, given.next(), uri.authority()) else {
            return None;
        };
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(last, _)| last == value).map(|(_, host)| host.clone())
    }

    pub(crate) fn note(&self, headers: &HeaderMap, host: &Authority) {
        if let Some(value) = headers.get(HOST).filter(|value| *value == host.as_str()) {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((value.clone(), host.clone()));
        }
    }
}

/// The one authority of the request. Two that differ are an attempt to be two requests at once.
fn named(uri: &Uri, headers: &HeaderMap) -> Result<Authority> {
    let invalid =
        |value: &str| Error::invalid("host", value, "one host name, with or without port");
    let mut given = headers.get_all(HOST).iter();
    let header = match (given.next(), given.next()) {
        (Some(_), Some(_)) => return Err(invalid("several values")),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| invalid("not text"))?;
            Some(text.parse::<Authority>().map_err(|_| invalid(text))?)
        }
        (None, _) => None,
    };
    match (uri.authority(), header) {
        (Some(target), Some(header)) if *target != header => Err(invalid(header.as_str())),
        (Some(target), _) => plain(target.clone()),
        (None, Some(header)) => plain(header),
        (None, None) => Err(invalid("missing")),
    }
}

/// Refuses user information: `trusted@evil` reads as either to the careless.
fn plain(authority: Authority) -> Result<Authority> {
    let behind = authority.as_str().strip_prefix(authority.host());
    let rest_is_port = behind.is_some_and(|rest| rest.is_empty() || authority.port().is_some());
    if authority.as_str().contains('@') || authority.host().is_empty() || !rest_is_port {
        let allowed = "one host name, with or without port";
        return Err(Error::invalid("host", authority.as_str(), allowed));
    }
    Ok(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer {
            address: "10.0.0.9:5000".parse().unwrap(),
            local: "10.0.0.1:7070".parse().unwrap(),
            tls: false,
        }
    }

    #[test]
    fn only_our_names_are_answered() {
        let hosts = Hosts::new(&["Falaj.Example.ae".to_owned()]);
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:7070", true),
            ("127.0.0.1:7070", true),
            ("[::1]:7070", true),
            ("10.0.0.1", true),
            ("falaj.example.ae", true),
            ("falaj.example.ae:443", true),
            ("10.0.0.2", false),
            ("evil.example", false),
            ("falaj.example.ae.evil", false),
            ("evil-falaj.example.ae", false),
            ("localhost.evil.example", false),
            ("localhost@evil.example", false),
            ("evil.example@localhost", false),
            ("[::1]evil", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            let answer = hosts.check(&Uri::from_static("/"), &headers, &peer());
            assert_eq!(answer.is_ok(), expected, "{host}");
        }
    }

    #[test]
    fn two_different_hosts_are_refused() {
        let hosts = Hosts::new(&[]);
        let mut headers = HeaderMap::new();
        assert!(hosts.check(&Uri::from_static("/"), &headers, &peer()).is_err(), "none at all");
        headers.append(HOST, "localhost".parse().unwrap());
        let absolute = Uri::from_static("http://127.0.0.1/");
        assert!(hosts.check(&absolute, &headers, &peer()).is_err(), "two that differ");
        headers.append(HOST, "localhost".parse().unwrap());
        assert!(hosts.check(&Uri::from_static("/"), &headers, &peer()).is_err(), "two headers");
    }

    #[test]
    fn a_host_is_known_again_only_by_the_very_same_words() {
        let last = LastHost::default();
        let headers = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            headers
        };
        let (path, whole) = (Uri::from_static("/v1"), Uri::from_static("http://localhost/v1"));
        let once = headers(&["localhost"]);
        assert_eq!(last.known(&path, &once), None);
        last.note(&once, &Authority::from_static("localhost"));
        assert_eq!(last.known(&path, &once).unwrap(), "localhost");
        assert_eq!(last.known(&whole, &once), None);
        for other in [&["LOCALHOST"][..], &["localhost", "localhost"], &["evil"], &[]] {
            assert_eq!(last.known(&path, &headers(other)), None, "{other:?}");
        }
    }
}
