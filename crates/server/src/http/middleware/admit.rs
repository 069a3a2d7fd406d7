//! The checks that need only the head of a request, before anything is spent on it.

use axum::extract::Request;
use falaj_base::Result;

use super::host::Hosts;
use super::origin::Origins;
use super::path;
use crate::http::config::{LimitsConfig, ServerConfig};
use crate::http::connection::Line;

#[derive(Debug)]
pub(crate) struct Rules {
    hosts: Hosts,
    origins: Origins,
    max_uri_size: usize,
}

impl Rules {
    pub(crate) fn new(server: &ServerConfig, limits: &LimitsConfig) -> Self {
        Self {
            hosts: Hosts::new(&server.allowed_hosts),
            origins: Origins::new(&server.allowed_origins),
            max_uri_size: limits.max_uri_size.as_usize(),
        }
    }

    /// Lets a well-formed request for us through, with its host noted beside it.
    ///
    /// `X-HTTP-Method-Override` and its relatives are not looked at anywhere: the method is the one
    /// on the request line.
    pub(crate) fn check(&self, request: &mut Request, line: &Line) -> Result<()> {
        path::check(request.uri(), self.max_uri_size)?;
        let peer = &line.peer;
        let host = if let Some(host) = line.hosts.known(request.uri(), request.headers()) {
            host
        } else {
            let host = self.hosts.check(request.uri(), request.headers(), peer)?;
            line.hosts.note(request.headers(), &host);
            host
        };
        self.origins.check(request.method(), request.headers(), &host, peer.tls)?;
        request.extensions_mut().insert(host);
        Ok(())
    }
}
