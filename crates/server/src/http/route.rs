//! What the middleware must know about a route before its handler runs.
//!
//! Must hold: a route that is not in the table is not public. Forgetting to list one closes it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::MatchedPath;
use falaj_base::Action;
use http::Method;

use crate::metrics::{Metrics, RouteMeter};

/// How a route uses the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// One body in, one body out, both small: buffered, decompressed, under a deadline.
    #[default]
    Call,
    /// Bytes that flow for as long as they flow.
    Stream,
    /// Framed by gRPC itself.
    Grpc,
    /// Answers also when the server is at its limit.
    Health,
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone: health, sign-in and the pages about errors only.
    Public,
    /// Whoever holds a URL that this server signed. The handler looks at the signature before it
    /// reads anything, so the route is a transfer like any other, not one for strangers.
    Signed,
    /// Anyone with a credential.
    Authenticated,
    /// Whoever the policy allows this.
    Action(&'static Action),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Route {
    pub method: Method,
    /// The path as the router matches it, with `{parameters}`.
    pub path: String,
    pub access: Access,
    pub kind: RouteKind,
    /// Whether its bodies may be larger than those of other calls.
    pub large: bool,
}

/// What the layers know about a request's route.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "answers to different questions")]
pub(crate) struct Class {
    pub(crate) kind: RouteKind,
    /// Whether anyone may call it.
    pub(crate) public: bool,
    /// Whether it takes no credential: it is public, or a signature stands for one.
    pub(crate) open: bool,
    /// Whether its bodies may be larger than others.
    pub(crate) large: bool,
    /// Whether it is called so often that a line about each success would say nothing.
    pub(crate) busy: bool,
    /// Where its calls are counted.
    pub(crate) meter: Option<RouteMeter>,
}

/// The path of a request's route, with `{parameters}`.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// As the router found it.
    Matched(MatchedPath),
    /// Of a call that passed the router by.
    Direct(&'static str),
}

impl Pattern {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Matched(path) => path.as_str(),
            Self::Direct(path) => path,
        }
    }
}

/// Every route there is, by path and method.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    rows: HashMap<String, Vec<(Method, Arc<Class>)>>,
    /// That of an unknown path and of a wrong method.
    unknown: Arc<Class>,
}

impl RouteTable {
    pub(crate) fn new(routes: impl IntoIterator<Item = Route>, metrics: &Metrics) -> Self {
        let mut table = Self::default();
        for Route { method, path, access, kind, large } in routes {
            let class = Class {
                kind,
                public: access == Access::Public,
                open: matches!(access, Access::Public | Access::Signed),
                large,
                busy: is_asked_all_the_time(&path),
                meter: Some(metrics.route(&method, &path)),
            };
            table.rows.entry(path).or_default().push((method, Arc::new(class)));
        }
        table
    }

    /// What is known of a request's route. HEAD is GET without the body, so it is what GET is,
    /// unless it has a row of its own.
    pub(crate) fn class(&self, path: Option<&Pattern>, method: &Method) -> &Arc<Class> {
        let rows = path.and_then(|path| self.rows.get(path.as_str()));
        let of = |method: &Method| rows?.iter().find(|(other, _)| other == method);
        let head = || if *method == Method::HEAD { of(&Method::GET) } else { None };
        of(method).or_else(head).map_or(&self.unknown, |(_, class)| class)
    }
}

/// Balancers ask every few seconds, and callers of models and of features, and jobs that log, thousands
/// of times a second: that all is well is not news, and a line about it costs as much as a small model's
/// answer. Who asked or logged how often is on the audit log.
fn is_asked_all_the_time(route: &str) -> bool {
    const HEALTH: [&str; 2] = ["/health/", "/v2/health/"];
    const ASKED: [&str; 4] = ["/infer", "/invocations", "/ModelInfer", "/get-online-features"];
    const LOGGED: [&str; 4] = ["/log-metric", "/log-batch", "/v1/traces", "/report"];
    HEALTH.iter().any(|health| route.starts_with(health))
        || ASKED.iter().chain(&LOGGED).any(|often| route.ends_with(often))
}
