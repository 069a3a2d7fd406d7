//! `/v1/tenants/{tenant}/projects/{project}/import`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::{Json, routing};
use falaj_base::{Ctx, Name, Result};
use falaj_mlflow::{Call, Places};
use falaj_web::{Created, Doc, Endpoint, Input, Ok200, Routes, problem_response};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::{
    Asked, Experiments, FilesAsked, FilesHere, Here, Imported, LandedAll, LoggedModels, Points,
    Runs,
};
use crate::artifact::ArtifactPath;
use crate::{IMPORT, IMPORT_CHECK, Tracking};

const EXPERIMENTS: &str = "/v1/tenants/{tenant}/projects/{project}/import/experiments";
const RUNS: &str = "/v1/tenants/{tenant}/projects/{project}/import/runs";
const POINTS: &str = "/v1/tenants/{tenant}/projects/{project}/import/points";
const LOGGED_MODELS: &str = "/v1/tenants/{tenant}/projects/{project}/import/logged-models";
const CHECK: &str = "/v1/tenants/{tenant}/projects/{project}/import/check";
const FILES: &str = "/v1/tenants/{tenant}/projects/{project}/import/files";
const FILE: &str = "/v1/tenants/{tenant}/projects/{project}/import/artifacts/{*path}";

/// What the routes work with: the path names the project.
#[derive(Debug)]
pub(crate) struct Moving {
    tracking: Tracking,
    places: Places,
}

pub(crate) fn routes(tracking: &Tracking, places: &Places) -> Vec<Endpoint> {
    let moving = Arc::new(Moving { tracking: tracking.clone(), places: places.clone() });
    let m = moving.clone();
    let put =
        routing::put(move |Extension(ctx), path, request| file(m.clone(), ctx, path, request));
    let put_doc = Doc {
        summary: "Import a file of a run or a logged model",
        takes: Some("application/octet-stream"),
        gives: Some("application/json"),
        status: 201,
        query: &[],
    };
    Routes::new(moving)
        .post(EXPERIMENTS, &IMPORT, "Import experiments", experiments)
        .post(RUNS, &IMPORT, "Import runs", runs)
        .post(POINTS, &IMPORT, "Import points of metrics", points)
        .post(LOGGED_MODELS, &IMPORT, "Import logged models", logged_models)
        .post(CHECK, &IMPORT_CHECK, "Digest runs and logged models", check)
        .post(FILES, &IMPORT_CHECK, "List files with their digests", files)
        .raw(Method::PUT, FILE, &IMPORT, put_doc, put)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

impl Moving {
    async fn call(&self, ctx: Ctx, path: ProjectPath) -> Result<Call> {
        let place = self.places.named(&ctx, &path.tenant, &path.project).await?;
        Ok(Call { ctx, place, connection: None })
    }
}

type In<B> = Input<ProjectPath, (), B>;

async fn experiments(
    m: Arc<Moving>,
    ctx: Ctx,
    input: In<Experiments>,
) -> Result<Created<LandedAll>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_experiments(&call, input.body).await.map(Created)
}

async fn runs(m: Arc<Moving>, ctx: Ctx, input: In<Runs>) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_runs(&call, input.body).await.map(Created)
}

async fn points(m: Arc<Moving>, ctx: Ctx, input: In<Points>) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_points(&call, input.body).await.map(Created)
}

async fn logged_models(
    m: Arc<Moving>,
    ctx: Ctx,
    input: In<LoggedModels>,
) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_logged_models(&call, input.body).await.map(Created)
}

async fn check(m: Arc<Moving>, ctx: Ctx, input: In<Asked>) -> Result<Ok200<Here>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.check_import(&call, input.body).await.map(Ok200)
}

async fn files(m: Arc<Moving>, ctx: Ctx, input: In<FilesAsked>) -> Result<Ok200<FilesHere>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.files_here(&call, input.body).await.map(Ok200)
}

async fn file(
    m: Arc<Moving>,
    ctx: Ctx,
    Path((tenant, project, path)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let answer = async {
        let tenant = Name::new(tenant).map_err(|error| error.at("tenant"))?;
        let project = Name::new(project).map_err(|error| error.at("project"))?;
        let call = m.call(ctx, ProjectPath { tenant, project }).await?;
        m.tracking.import_file(&call, ArtifactPath::new(path)?, request).await
    };
    match answer.await {
        Ok(file) => (StatusCode::CREATED, Json(file)).into_response(),
        Err(error) => problem_response(&error),
    }
}
