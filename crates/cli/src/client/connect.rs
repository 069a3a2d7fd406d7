//! Whom to trust with a connection.

use std::net::IpAddr;
use std::path::Path;

use reqwest::{Certificate, ClientBuilder, Url};

use crate::exit::{Failure, Result, file_error};

pub(super) fn parse_url(text: &str) -> Result<Url> {
    let refuse = || {
        Failure::usage(format!("`{text}` is not a server URL"))
            .hint("write it like http://127.0.0.1:7470 or https://falaj.example.ae")
    };
    let url = Url::parse(text).map_err(|_| refuse())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if plain { Ok(url) } else { Err(refuse()) }
}

pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A token sent over plain HTTP is a token given away, except to this machine.
pub(super) fn refuse_open_wire(url: &Url) -> Result<()> {
    if url.scheme() == "https" || is_loopback(url) {
        return Ok(());
    }
    Err(Failure::usage(format!("{url} is plain HTTP: the token would be sent unencrypted"))
        .hint("use https://, or add --allow-http if the network between is trusted"))
}

pub(super) fn trust(
    mut builder: ClientBuilder,
    url: &Url,
    cacert: Option<&Path>,
) -> Result<ClientBuilder> {
    if is_loopback(url) {
        // A proxy for the outside world has no business with this machine's own ports.
        builder = builder.no_proxy();
    }
    if let Some(path) = cacert {
        let pem = std::fs::read(path).map_err(file_error("read", path))?;
        let bundle = Certificate::from_pem_bundle(&pem).ok().filter(|bundle| !bundle.is_empty());
        let bundle = bundle.ok_or_else(|| {
            Failure::usage(format!("{} holds no PEM certificate", path.display()))
        })?;
        return Ok(builder.tls_certs_only(bundle));
    }
    // Without TLS no certificate store is needed; a machine that has none must still work.
    Ok(if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_server_urls_are_taken() {
        for good in ["http://127.0.0.1:7470", "https://falaj.example.ae/", "http://[::1]:1/x"] {
            assert!(parse_url(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:7470", "ftp://x", "https://u:p@x", "https://x?y", "https://x#y"]
        {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_stays_off_the_open_wire() {
        for (url, allowed) in [
            ("http://127.0.0.1:1", true),
            ("http://localhost:1", true),
            ("http://[::1]:1", true),
            ("https://example.ae", true),
            ("http://example.ae", false),
            ("http://127.0.0.1.example.ae", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(refuse_open_wire(&parse_url(url).unwrap()).is_ok(), allowed, "{url}");
        }
    }
}
