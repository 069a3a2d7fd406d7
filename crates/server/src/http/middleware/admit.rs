//! The checks that need only the head of a request, before anything is spent on it.

use std::sync::Arc;

use super::pipeline::Next;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result};

use super::host::Hosts;
use super::origin::Origins;
use super::path;
use crate::http::config::{LimitsConfig, ServerConfig};
use crate::http::connection::Peer;
use crate::http::reply::refuse;
use crate::http::route::RouteTable;

#[derive(Debug)]
pub(crate) struct Rules {
    hosts: Hosts,
    origins: Origins,
    max_uri_size: usize,
    table: RouteTable,
}

impl Rules {
    pub(crate) fn new(server: &ServerConfig, limits: &LimitsConfig, table: RouteTable) -> Self {
        Self {
            hosts: Hosts::new(&server.allowed_hosts),
            origins: Origins::new(&server.allowed_origins),
            max_uri_size: limits.max_uri_size.as_usize(),
            table,
        }
    }

    fn check(&self, request: &mut Request) -> Result<()> {
        path::check(request.uri(), self.max_uri_size)?;
        let peer = request.extensions().get::<Peer>().copied();
        let peer = peer.ok_or_else(|| Error::internal("the request has no peer"))?;
        let host = self.hosts.check(request.uri(), request.headers(), &peer)?;
        self.origins.check(request.method(), request.headers(), &host, peer.tls)?;
        request.extensions_mut().insert(host);
        self.table.classify(request);
        Ok(())
    }
}

/// Lets a well-formed request for us through, with its host and its class noted beside it.
///
/// `X-HTTP-Method-Override` and its relatives are not looked at anywhere: the method is the one
/// on the request line.
pub(crate) async fn admit(rules: Arc<Rules>, mut request: Request, next: Next) -> Response {
    match rules.check(&mut request) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(error),
    }
}
