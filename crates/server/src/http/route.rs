//! What the middleware must know about a route before its handler runs.
//!
//! Must hold: a route that is not in the table is not public. Forgetting to list one closes it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use falaj_base::Action;
use http::Method;

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

/// Every route there is, by path and method.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable(Arc<HashMap<String, Vec<Route>>>);

impl RouteTable {
    pub(crate) fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        let mut table: HashMap<String, Vec<Route>> = HashMap::new();
        for route in routes {
            table.entry(route.path.clone()).or_default().push(route);
        }
        Self(Arc::new(table))
    }

    /// Looks the request up, and notes what was found beside it.
    pub(crate) fn classify(&self, request: &mut Request) {
        let found = request
            .extensions()
            .get::<MatchedPath>()
            .and_then(|path| self.find(path.as_str(), request.method()));
        let class = match found {
            Some(Route { kind, access, large, .. }) => Class {
                kind: *kind,
                large: *large,
                public: *access == Access::Public,
                open: matches!(access, Access::Public | Access::Signed),
            },
            None => Class::default(),
        };
        request.extensions_mut().insert(class);
    }

    /// HEAD is GET without the body, so it is what GET is, unless it has a row of its own.
    fn find(&self, path: &str, method: &Method) -> Option<&Route> {
        let routes = self.0.get(path)?;
        let of = |method: &Method| routes.iter().find(|route| route.method == *method);
        of(method).or_else(|| if *method == Method::HEAD { of(&Method::GET) } else { None })
    }
}

/// What was found; the default is for the unknown path and the wrong method.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    kind: RouteKind,
    public: bool,
    open: bool,
    large: bool,
}

impl RouteKind {
    pub(crate) fn of(request: &Request) -> Self {
        request.extensions().get::<Class>().copied().unwrap_or_default().kind
    }
}

/// Whether the request needs no credential: the route is public, or a signature stands for one.
pub(crate) fn is_open(request: &Request) -> bool {
    request.extensions().get::<Class>().copied().unwrap_or_default().open
}

/// Whether the body of the request may be larger than others.
pub(crate) fn is_large(request: &Request) -> bool {
    request.extensions().get::<Class>().copied().unwrap_or_default().large
}

/// Whether the request is for a route that anyone may call.
pub(crate) fn is_public(request: &Request) -> bool {
    request.extensions().get::<Class>().copied().unwrap_or_default().public
}
