//! The one router, and the layers around it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Gate, Result, code};
use falaj_governance::identity::Authenticator;
use falaj_store::db::Db;
use falaj_web::openapi::Outline;
use falaj_web::{Endpoint, Module, problem_response};
use http::{Method, Uri};

use super::config::{LimitsConfig, ServerConfig};
use super::drain::Drain;
use super::express::{Doors, Lane};
use super::middleware::admit::Rules;
use super::middleware::auth::Door;
use super::middleware::body::Intake;
use super::middleware::deadline::Deadlines;
use super::middleware::rate::RateLimit;
use super::middleware::shed::Slots;
use super::own::Description;
use super::port::Port;
use super::route::{Access, Route, RouteKind, RouteTable};
use crate::grpc;
use crate::metrics::Metrics;

/// What the router is made of.
pub struct App<'a> {
    pub server: &'a ServerConfig,
    pub limits: &'a LimitsConfig,
    pub modules: Vec<Module>,
    pub description: Description,
    pub db: Db,
    pub gate: Arc<dyn Gate>,
    pub authenticator: Arc<Authenticator>,
    pub metrics: Metrics,
    pub drain: Drain,
}

impl std::fmt::Debug for App<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("modules", &self.modules).finish_non_exhaustive()
    }
}

/// Composes everything into one service, and lists what it answers to.
pub fn build(app: App<'_>) -> Result<(Doors, Vec<Route>)> {
    app.description.tell(Outline::of(&app.modules))?;
    let mut rows = route_table(&app.modules);
    let (services, service_rows) = grpc::services(app.drain.clone())?;
    rows.extend(service_rows);
    let endpoints: Vec<Endpoint> =
        app.modules.into_iter().flat_map(|module| module.endpoints).collect();
    let lanes = endpoints.iter().filter_map(Lane::of).collect();
    let router = endpoints
        .into_iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
        .merge(services)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method);

    let port = Arc::new(Port {
        table: RouteTable::new(rows.iter().cloned(), &app.metrics),
        rules: Rules::new(app.server, app.limits),
        slots: Slots::new(app.limits, app.metrics.clone()),
        metrics: app.metrics,
        deadlines: Deadlines::new(app.limits),
        door: Door { authenticator: app.authenticator, rate: RateLimit::new(app.limits) },
        intake: Intake::new(app.limits),
        db: app.db,
        gate: app.gate,
    });
    // Handlers and what lies around them are put together here, once, not for each request.
    let router = port.around(router).with_state(());
    Ok((Doors::new(router, port, lanes, app.limits), rows))
}

/// Every route of `modules`, for the middleware and for the test that walks them all.
#[must_use]
pub fn route_table(modules: &[Module]) -> Vec<Route> {
    let endpoints = modules.iter().flat_map(|module| &module.endpoints);
    endpoints
        .map(|endpoint| {
            let kind = kind(endpoint);
            let access = match endpoint.action {
                Some(action) => Access::Action(action),
                // Nothing that streams is open to strangers: a signature opens it.
                None if kind == RouteKind::Stream => Access::Signed,
                None => Access::Public,
            };
            Route {
                method: endpoint.method.clone(),
                path: endpoint.path.to_owned(),
                access,
                kind,
                large: endpoint.large,
            }
        })
        .collect()
}

/// An endpoint that takes or gives anything but small documents is a transfer; what it takes and
/// gives stands in its own description.
fn kind(endpoint: &Endpoint) -> RouteKind {
    if endpoint.path.starts_with("/health/") || endpoint.path.starts_with("/v2/health/") {
        return RouteKind::Health;
    }
    if endpoint.is_grpc() {
        return RouteKind::Grpc;
    }
    if endpoint.media().all(is_document) { RouteKind::Call } else { RouteKind::Stream }
}

fn is_document(media: &str) -> bool {
    matches!(
        media,
        "application/json"
            | "application/x-www-form-urlencoded"
            | "application/openmetrics-text"
            | "text/html"
            | "text/plain"
            | "application/x-pem-file"
    )
}

/// Only a caller with a credential gets this far: the door answers the others.
async fn unknown_route(request: Request) -> Response {
    if grpc::is_grpc(request.headers()) {
        let status = tonic::Status::unimplemented("there is no such method here");
        return status.into_http::<()>().map(|()| axum::body::Body::empty());
    }
    problem_response(&Error::not_found("route", request.uri().path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} is not a method of {}", method.as_str(), uri.path());
    problem_response(&Error::new(&code::METHOD_NOT_ALLOWED, message))
}
