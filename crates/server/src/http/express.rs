//! What answers at the port: the router, and before it the short way of calls that come by the ten
//! thousand a second.
//!
//! Must hold: a call on the short way passes the same layers in the same order as any other
//! ([`super::port`]) and is answered the same. Whatever is not plainly such a call is for the router:
//! a name with anything encoded in it, and a key that the reply is to be remembered by.
//!
//! Connections that bring only such calls are read and written here as well ([`wire`]).

mod head;
mod reply;
mod wire;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use falaj_web::{Direct, Endpoint};
use futures::FutureExt;
use futures::future::Either;
use http::Method;
use tower::Service;

use super::config::LimitsConfig;
use super::connection::Line;
use super::middleware::budget::Reservation;
use super::middleware::idempotency;
use super::port::{Handler, Port};
use super::route::Pattern;

use head::Lengths;

pub(super) use head::Head;
pub(super) use wire::{End, Stay, Wire};

/// The largest request that is read on the short way though it is larger than a head may be: to make sense
/// of it takes well less than a millisecond.
const LARGEST: usize = 128 * 1024;

/// Everything that answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Doors {
    router: Router,
    express: Option<Arc<Express>>,
}

/// The calls that have a short way.
pub(super) struct Express {
    port: Arc<Port>,
    lanes: Vec<Lane>,
    /// How many headers a request may have, and how large a request may be that is read here.
    max_headers: usize,
    max_size: usize,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    method: Method,
    path: &'static str,
    /// What stands before the one parameter of the path, and behind it; all of it, without one.
    around: (&'static str, Option<&'static str>),
    handler: Direct,
}

impl From<Router> for Doors {
    /// A router alone.
    fn from(router: Router) -> Self {
        Self { router, express: None }
    }
}

impl Doors {
    pub(super) fn new(
        router: Router,
        port: Arc<Port>,
        lanes: Vec<Lane>,
        limits: &LimitsConfig,
    ) -> Self {
        let (max_headers, max_size) = (limits.max_headers, limits.max_header_size.as_usize());
        Self { router, express: Some(Arc::new(Express { port, lanes, max_headers, max_size })) }
    }

    /// The short way, if there is one.
    pub(super) fn express(&self) -> Option<&Arc<Express>> {
        self.express.as_ref()
    }

    /// Answers a request that came over a line.
    pub(super) fn answer(
        &self,
        mut request: Request,
        line: Arc<Line>,
    ) -> impl Future<Output = Response> + Send + 'static + use<> {
        let express = self.express.as_ref();
        if let Some((express, lane)) = express.and_then(|express| express.find(&request)) {
            let (path, handler) = (Some(Pattern::Direct(lane.path)), lane.handler.clone());
            return Either::Left(Box::pin(async move {
                express.port.answer(request, line, path, Handler::Direct(handler)).await
            }));
        }
        request.extensions_mut().insert(line);
        Either::Right(self.router.clone().call(request).map(|answer| {
            let Ok(response) = answer;
            response
        }))
    }
}

impl Express {
    fn find(self: &Arc<Self>, request: &Request) -> Option<(Arc<Self>, &Lane)> {
        let path = request.uri().path();
        let lane = self.lanes.iter().find(|lane| lane.is_for(request.method(), path))?;
        let plain = !idempotency::is_asked_for(request.headers());
        plain.then(|| (Arc::clone(self), lane))
    }

    /// Room for what came of a request that is larger than what a stranger may have us keep; none if there
    /// is no more, or whoever sends it may be a stranger.
    fn room(
        &self,
        (head, lengths): (&Head, Lengths),
        came: usize,
        line: &Line,
    ) -> Option<Reservation> {
        let Port { door, intake, .. } = &*self.port;
        if lengths.head > self.max_size || lengths.all() > LARGEST {
            return None;
        }
        intake.check(lengths.body, &head.class).ok()?;
        if door.knows(&head.parts.headers, &line.last) { intake.room(came).ok() } else { None }
    }
}

impl Lane {
    /// The short way of an endpoint, if it has one.
    pub(super) fn of(endpoint: &Endpoint) -> Option<Self> {
        let handler = endpoint.direct.clone()?;
        let around = match endpoint.path.split_once('{') {
            Some((before, rest)) => (before, Some(rest.split_once('}')?.1)),
            None => (endpoint.path, None),
        };
        Some(Self { method: endpoint.method.clone(), path: endpoint.path, around, handler })
    }

    fn is_for(&self, method: &Method, path: &str) -> bool {
        let (before, behind) = self.around;
        let rest = path.strip_prefix(before);
        let plain = |name: &str| !name.is_empty() && !name.contains(['/', '%']);
        let ours = match behind {
            Some(behind) => rest.and_then(|rest| rest.strip_suffix(behind)).is_some_and(plain),
            None => rest == Some(""),
        };
        ours && *method == self.method
    }
}

impl fmt::Debug for Express {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.lanes).finish()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::routing::post;
    use falaj_web::{Doc, Plain, Routes};

    use super::*;
    use crate::http::METRICS_READ;

    fn lane(path: &'static str) -> Lane {
        let handler = post(async || "routed");
        let routes = Routes::new(Arc::new(()));
        let routes = routes.raw(Method::POST, path, &METRICS_READ, Doc::default(), handler);
        let direct = routes.directly(|_, _, _| async {
            Ok(Plain { media: "text/plain", beside: None, body: Bytes::new() })
        });
        let mut endpoints = direct.into_endpoints();
        let lane = Lane::of(&endpoints[0]).unwrap();
        endpoints[0].direct = None;
        assert!(Lane::of(&endpoints[0]).is_none());
        lane
    }

    #[test]
    fn without_a_name_the_path_is_all_of_it() {
        let lane = lane("/api/runs/log");
        for (method, path, ours) in [
            (Method::POST, "/api/runs/log", true),
            (Method::GET, "/api/runs/log", false),
            (Method::POST, "/api/runs/log/", false),
            (Method::POST, "/api/runs/log-more", false),
            (Method::POST, "/api/runs", false),
            (Method::POST, "/api/runs/l%6fg", false),
        ] {
            assert_eq!(lane.is_for(&method, path), ours, "{method} {path}");
        }
    }

    #[test]
    fn only_a_plain_name_takes_the_short_way() {
        let lane = lane("/v2/models/{name}/infer");
        for (method, path, ours) in [
            (Method::POST, "/v2/models/churn/infer", true),
            (Method::POST, "/v2/models/a-b.c/infer", true),
            (Method::GET, "/v2/models/churn/infer", false),
            (Method::POST, "/v2/models/team%2Fchurn/infer", false),
            (Method::POST, "/v2/models/churn/versions/1/infer", false),
            (Method::POST, "/v2/models//infer", false),
            (Method::POST, "/v2/models/infer", false),
            (Method::POST, "/v2/models/churn/infer/", false),
            (Method::POST, "/v2/models/churn", false),
        ] {
            assert_eq!(lane.is_for(&method, path), ours, "{method} {path}");
        }
    }
}
