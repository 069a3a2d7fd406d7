//! `/v1/tenants/{tenant}/projects/{project}/import`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Json, routing};
use falaj_base::{Ctx, Name, Result};
use falaj_mlflow::{Call, Places};
use falaj_web::{Created, Doc, Endpoint, Input, Ok200, Routes, problem_response};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Way;
use super::wire::{
    Asked, ExperimentsIn, FilesAsked, FilesHere, Here, Imported, LandedAll, LoggedModels, Marks,
    MarksAsked, Points, Runs, Settled,
};
use crate::artifact::ArtifactPath;
use crate::{IMPORT, IMPORT_CHECK, SYNC, Tracking};

const EXPERIMENTS: &str = "/v1/tenants/{tenant}/projects/{project}/import/experiments";
const RUNS: &str = "/v1/tenants/{tenant}/projects/{project}/import/runs";
const POINTS: &str = "/v1/tenants/{tenant}/projects/{project}/import/points";
const LOGGED_MODELS: &str = "/v1/tenants/{tenant}/projects/{project}/import/logged-models";
const CHECK: &str = "/v1/tenants/{tenant}/projects/{project}/import/check";
const FILES: &str = "/v1/tenants/{tenant}/projects/{project}/import/files";
const MARKS: &str = "/v1/tenants/{tenant}/projects/{project}/import/marks";
const SYNC_EXPERIMENTS: &str = "/v1/tenants/{tenant}/projects/{project}/sync/experiments";
const SYNC_RUNS: &str = "/v1/tenants/{tenant}/projects/{project}/sync/runs";
const SYNC_POINTS: &str = "/v1/tenants/{tenant}/projects/{project}/sync/points";
const SYNC_LOGGED_MODELS: &str = "/v1/tenants/{tenant}/projects/{project}/sync/logged-models";
const SYNC_SETTLED: &str = "/v1/tenants/{tenant}/projects/{project}/sync/settled";
const SYNC_FILE: &str = "/v1/tenants/{tenant}/projects/{project}/sync/artifacts/{*path}";
const FILE: &str = "/v1/tenants/{tenant}/projects/{project}/import/artifacts/{*path}";

/// What the routes work with: the path names the project, and the way.
#[derive(Debug)]
pub(crate) struct Moving {
    tracking: Tracking,
    places: Places,
    way: Way,
}

pub(crate) fn routes(tracking: &Tracking, places: &Places) -> Vec<Endpoint> {
    let moving = |way| Arc::new(Moving { tracking: tracking.clone(), places: places.clone(), way });
    let (import, sync) = (moving(Way::Import), moving(Way::Sync));
    let (put_import, put_sync) = (put(import.clone()), put(sync.clone()));
    let mut all: Vec<Endpoint> = Routes::new(import)
        .post(EXPERIMENTS, &IMPORT, "Import experiments", experiments)
        .post(RUNS, &IMPORT, "Import runs", runs)
        .post(POINTS, &IMPORT, "Import points of metrics", points)
        .post(LOGGED_MODELS, &IMPORT, "Import logged models", logged_models)
        .post(CHECK, &IMPORT_CHECK, "Digest runs and logged models", check)
        .post(FILES, &IMPORT_CHECK, "List files with their digests", files)
        .post(MARKS, &IMPORT_CHECK, "Tell what came from a source, and how far", marks)
        .raw(
            Method::PUT,
            FILE,
            &IMPORT,
            put_doc("Import a file of a run or a logged model"),
            put_import,
        )
        .into();
    let synced: Vec<Endpoint> = Routes::new(sync)
        .post(SYNC_EXPERIMENTS, &SYNC, "Join or add experiments that were logged to", experiments)
        .post(SYNC_RUNS, &SYNC, "Add or extend runs that were logged elsewhere", runs)
        .post(SYNC_POINTS, &SYNC, "Add points that were logged elsewhere", points)
        .post(SYNC_LOGGED_MODELS, &SYNC, "Add or extend logged models", logged_models)
        .post(SYNC_SETTLED, &SYNC, "Note what a sync has brought over", settled)
        .raw(
            Method::PUT,
            SYNC_FILE,
            &SYNC,
            put_doc("Add a file that was logged elsewhere"),
            put_sync,
        )
        .into();
    all.extend(synced);
    all
}

fn put(moving: Arc<Moving>) -> MethodRouter {
    routing::put(move |Extension(ctx), path, request| file(moving.clone(), ctx, path, request))
}

const fn put_doc(summary: &'static str) -> Doc {
    Doc {
        summary,
        takes: Some("application/octet-stream"),
        gives: Some("application/json"),
        status: 201,
        query: &[("source", "A name for the store that it comes from, the same every time.")],
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

impl Moving {
    async fn call(&self, ctx: Ctx, path: ProjectPath) -> Result<Call> {
        self.places.call(&ctx, &path.tenant, &path.project).await
    }
}

type In<B> = Input<ProjectPath, (), B>;

async fn experiments(
    m: Arc<Moving>,
    ctx: Ctx,
    input: In<ExperimentsIn>,
) -> Result<Created<LandedAll>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_experiments(&call, m.way, input.body).await.map(Created)
}

async fn runs(m: Arc<Moving>, ctx: Ctx, input: In<Runs>) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_runs(&call, m.way, input.body).await.map(Created)
}

async fn points(m: Arc<Moving>, ctx: Ctx, input: In<Points>) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_points(&call, m.way, input.body).await.map(Created)
}

async fn logged_models(
    m: Arc<Moving>,
    ctx: Ctx,
    input: In<LoggedModels>,
) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_logged_models(&call, m.way, input.body).await.map(Created)
}

async fn check(m: Arc<Moving>, ctx: Ctx, input: In<Asked>) -> Result<Ok200<Here>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.check_import(&call, input.body).await.map(Ok200)
}

async fn files(m: Arc<Moving>, ctx: Ctx, input: In<FilesAsked>) -> Result<Ok200<FilesHere>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.files_here(&call, input.body).await.map(Ok200)
}

async fn marks(m: Arc<Moving>, ctx: Ctx, input: In<MarksAsked>) -> Result<Ok200<Marks>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.import_marks(&call, input.body).await.map(Ok200)
}

async fn settled(m: Arc<Moving>, ctx: Ctx, input: In<Settled>) -> Result<Created<Imported>> {
    let call = m.call(ctx, input.path).await?;
    m.tracking.settle_import(&call, m.way, input.body).await.map(Created)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileQuery {
    source: String,
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
        let from: FileQuery = falaj_web::query(request.uri().query().unwrap_or(""))?;
        let call = m.call(ctx, ProjectPath { tenant, project }).await?;
        m.tracking.import_file(&call, (m.way, from.source), ArtifactPath::new(path)?, request).await
    };
    match answer.await {
        Ok(file) => (StatusCode::CREATED, Json(file)).into_response(),
        Err(error) => problem_response(&error),
    }
}
