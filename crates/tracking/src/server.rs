//! What the server says of itself to MLflow's clients.

use std::sync::Arc;

use axum::response::IntoResponse;
use axum::routing::get;
use falaj_base::{Action, Ctx, Resource, Result, Role, Scope};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::{Doc, Endpoint, Routes};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Tracking;

/// Whoever has a credential may know what the server can do.
pub(crate) static SELF_SERVER: Action =
    Action::read("self:mlflow", Role::Viewer, "Ask what the MLflow API here can do");

/// The version of MLflow whose API is spoken.
const VERSION: &str = "3.18.0";

pub(crate) fn routes(tracking: &Tracking, places: &Places) -> Vec<Endpoint> {
    let text = |summary| Doc { summary, gives: Some("text/plain"), status: 200, ..Doc::default() };
    let version = |axum::Extension(ctx): axum::Extension<Ctx>| async move {
        match known(&ctx).await {
            Ok(()) => VERSION.into_response(),
            Err(error) => falaj_web::problem_response(&error),
        }
    };
    let mut all: Vec<Endpoint> = Api::new(Arc::new(tracking.clone()), places.clone())
        .get("/api/3.0/mlflow/server-info", &SELF_SERVER, "What this server can do", info)
        .into();
    all.extend(
        Routes::new(Arc::new(()))
            .public(
                Method::GET,
                "/health",
                text("Whether the process runs, as MLflow's clients ask it"),
                get(|| async { "OK" }),
            )
            .raw(
                Method::GET,
                "/version",
                &SELF_SERVER,
                text("The version of MLflow whose API is spoken"),
                get(version),
            )
            .into_endpoints(),
    );
    all
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Debug, Serialize, JsonSchema)]
#[allow(clippy::struct_excessive_bools, reason = "the protocol's own shape")]
struct Info {
    store_type: &'static str,
    workspaces_enabled: bool,
    trace_archival_enabled: bool,
    multipart_uploads_enabled: bool,
    multipart_downloads_enabled: bool,
}

async fn info(t: Arc<Tracking>, call: Call, _: Nothing) -> Result<Info> {
    known(&call.ctx).await?;
    let artifact = &t.config().artifact;
    Ok(Info {
        store_type: "SqlStore",
        workspaces_enabled: false,
        trace_archival_enabled: false,
        multipart_uploads_enabled: artifact.multipart_uploads,
        multipart_downloads_enabled: artifact.multipart_downloads,
    })
}

async fn known(ctx: &Ctx) -> Result<()> {
    let home = ctx.principal.home.map_or(Scope::Platform, Scope::Tenant);
    ctx.authorize(&SELF_SERVER, &Resource::new("self", ctx.principal.id, home)).await
}
