//! The server's own routes: health, metrics, the pages about errors, and the description of all the
//! others.

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use falaj_base::{Action, Ctx, Error, Resource, Result, Role, Scope};
use falaj_web::openapi::Outline;
use falaj_web::{Doc, Module, Routes, problem_response};
use http::Method;
use http::header::CONTENT_TYPE;

use super::health::Readiness;
use crate::metrics::{self, Metrics};

pub static METRICS_READ: Action =
    Action::read("metrics:read", Role::Viewer, "Read the server's metrics").and_auditor();

/// The description is the same for everyone, so whoever has a credential may read it.
pub static SELF_API: Action =
    Action::read("self:api", Role::Viewer, "Read the description of the API");

pub static ACTIONS: &[&Action] = &[&METRICS_READ, &SELF_API];

/// The OpenAPI document: outlined once every module is known, written when first asked for.
#[derive(Clone, Debug, Default)]
pub struct Description(Arc<Described>);

#[derive(Debug, Default)]
struct Described {
    outline: OnceLock<Outline>,
    text: OnceLock<Bytes>,
}

impl Description {
    pub(super) fn tell(&self, outline: Outline) -> Result<()> {
        self.0.outline.set(outline).map_err(|_| Error::internal("described twice"))
    }

    fn text(&self) -> Result<Bytes> {
        let outline = self.0.outline.get().ok_or_else(|| Error::internal("not yet described"))?;
        let write = || outline.document(env!("CARGO_PKG_VERSION")).to_string().into();
        Ok(self.0.text.get_or_init(write).clone())
    }
}

/// The module of the server itself.
#[must_use]
pub fn module(readiness: Readiness, metrics: Metrics, description: Description) -> Module {
    let doc = |summary, gives| Doc { summary, gives: Some(gives), ..Doc::default() };
    let ready = move || {
        let readiness = readiness.clone();
        async move { answer(readiness.check().await.map(|()| status("ready"))) }
    };
    let metrics = move |Extension(ctx): Extension<Ctx>| {
        let metrics = metrics.clone();
        async move { answer(show_metrics(&ctx, &metrics).await) }
    };
    let describe = move |Extension(ctx): Extension<Ctx>| {
        let description = description.clone();
        async move { answer(describe(&ctx, description).await) }
    };
    let json = "application/json";
    let routes = Routes::new(Arc::new(()))
        .public(
            Method::GET,
            "/health/live",
            doc("Whether the process runs", json),
            get(|| async { status("live") }),
        )
        .public(
            Method::GET,
            "/health/ready",
            doc("Whether requests should be sent here", json),
            get(ready),
        )
        .public(
            Method::GET,
            "/docs/errors/{code}",
            doc("What an error means, and what to do: the `type` of a problem", "text/plain"),
            get(error_page),
        )
        .raw(
            Method::GET,
            "/metrics",
            &METRICS_READ,
            doc("The server's numbers, for Prometheus", "application/openmetrics-text"),
            get(metrics),
        )
        .raw(
            Method::GET,
            "/openapi.json",
            &SELF_API,
            doc("This description, as OpenAPI 3.1", json),
            get(describe),
        );
    Module::new("server").actions(ACTIONS).routes(routes)
}

fn answer(result: Result<Response>) -> Response {
    result.unwrap_or_else(|error| problem_response(&error))
}

fn status(word: &'static str) -> Response {
    axum::Json(serde_json::json!({ "status": word })).into_response()
}

/// The same for everyone and part of the binary, so whoever meets an error may read about it, also
/// without a credential: some errors are about just that.
async fn error_page(Path(code): Path<String>) -> Response {
    match falaj_base::error::error_page(&code) {
        Some(page) => ([(CONTENT_TYPE, "text/plain; charset=utf-8")], page).into_response(),
        None => problem_response(&Error::not_found("error code", &code)),
    }
}

async fn show_metrics(ctx: &Ctx, metrics: &Metrics) -> Result<Response> {
    ctx.authorize(&METRICS_READ, &Resource::platform()).await?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.encode()?).into_response())
}

async fn describe(ctx: &Ctx, description: Description) -> Result<Response> {
    let home = ctx.principal.home.map_or(Scope::Platform, Scope::Tenant);
    ctx.authorize(&SELF_API, &Resource::new("self", ctx.principal.id, home)).await?;
    // Writing it takes a while, once: other requests on this thread should not wait for that.
    let document = tokio::task::spawn_blocking(move || description.text());
    let document = document.await.map_err(Error::internal)??;
    Ok(([(CONTENT_TYPE, "application/json")], document).into_response())
}
