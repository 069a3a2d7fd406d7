//! `…/endpoints/{name}/predictions` and `…/outcomes`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use axum::routing::get;
use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_store::db::Tx;
use falaj_web::download::Download;
use falaj_web::{Doc, Endpoint as Route, Input, Ok200, Routes, problem_response};
use http::{HeaderMap, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::actions::{PREDICTION_READ, PREDICTION_REPORT};
use super::outcome::Outcome;
use super::prediction::Home;
use super::read::MAX_FILES;
use super::store::{File, Wanted};
use crate::endpoint::http::EndpointPath;
use crate::{Serving, rollout};

const FILES: &str = "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/predictions";
const FILE: &str = "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/predictions/{file}";
const OUTCOMES: &str = "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/outcomes";

pub(crate) fn routes(serving: Arc<Serving>) -> Vec<Route> {
    let download = Doc {
        summary: "Read a file of predictions",
        takes: None,
        gives: Some("application/vnd.apache.parquet"),
        status: 200,
        query: &[],
    };
    Routes::new(serving.clone())
        .get(FILES, &PREDICTION_READ, "List the files of an endpoint's predictions", list)
        .raw(Method::GET, FILE, &PREDICTION_READ, download, get(read).with_state(serving))
        .get(OUTCOMES, &PREDICTION_READ, "List what came of predictions", outcomes)
        .post(OUTCOMES, &PREDICTION_REPORT, "Report what came of predictions", report)
        .into()
}

/// Whose the predictions are, for a caller who may do this with them.
async fn home(
    path: &EndpointPath,
    s: &Serving,
    ctx: &Ctx,
    action: &'static falaj_base::Action,
) -> Result<Home> {
    let project = path.project(s, ctx).await?;
    Ok(s.seen(ctx, &project, &path.name, action).await?.home(&project))
}

/// Which files are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Span {
    /// Only files with predictions at or after this time.
    from: Option<Timestamp>,
    /// Only files with predictions at or before this time.
    to: Option<Timestamp>,
    /// The file after which to go on: the last one of the page before.
    #[schemars(with = "Option<String>")]
    after: Option<Uuid>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    #[schemars(with = "String")]
    id: Uuid,
    from: Timestamp,
    to: Timestamp,
    rows: u64,
    size: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Files {
    /// In the order in which they end; the last is where the next page begins.
    files: Vec<Shown>,
}

async fn list(s: Arc<Serving>, ctx: Ctx, input: Input<EndpointPath, Span>) -> Result<Ok200<Files>> {
    let home = home(&input.path, &s, &ctx, &PREDICTION_READ).await?;
    let Span { from, to, after } = input.query;
    let ever = (Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX));
    let after = match after {
        Some(file) => Some(s.predictions().file(&ctx, &home, file).await?),
        None => None,
    };
    let after = after.map(|file| (file.to, file.id));
    let span = (from.unwrap_or(ever.0), to.unwrap_or(ever.1));
    let found = s.predictions().files(&ctx, &home, span, after, MAX_FILES).await?;
    let shown = |file: File| Shown {
        id: file.id,
        from: file.from,
        to: file.to,
        rows: file.rows,
        size: file.size,
    };
    Ok(Ok200(Files { files: found.into_iter().map(shown).collect() }))
}

#[derive(Debug, Deserialize)]
struct OfFile {
    #[serde(flatten)]
    endpoint: EndpointPath,
    file: Uuid,
}

async fn read(
    State(s): State<Arc<Serving>>,
    Extension(ctx): Extension<Ctx>,
    path: std::result::Result<Path<OfFile>, axum::extract::rejection::PathRejection>,
    headers: HeaderMap,
) -> Response {
    let answer = async {
        let Path(path) = path.map_err(|bad| {
            Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad)
        })?;
        let home = home(&path.endpoint, &s, &ctx, &PREDICTION_READ).await?;
        let file = s.predictions().file(&ctx, &home, path.file).await?;
        let blob = s.predictions().open(&ctx, &home, &file).await?;
        let name = format!("{}.parquet", file.id);
        let download = Download {
            size: blob.size(),
            tag: &file.id.to_string(),
            content_type: "application/vnd.apache.parquet",
            file_name: &name,
            modified: file.to,
            extra: &[],
        };
        download.answer(&headers, |part| Ok(Body::from_stream(blob.read_range(part)?)))
    };
    answer.await.unwrap_or_else(|error: Error| problem_response(&error))
}

/// Which outcomes are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Which {
    /// Only those of this prediction.
    #[schemars(with = "Option<String>")]
    prediction: Option<Uuid>,
    /// The prediction of the last outcome of the page before.
    #[schemars(with = "Option<String>")]
    after: Option<Uuid>,
    /// The row of that outcome.
    after_row: u32,
}

/// An outcome as it was reported: a value or a label.
#[derive(Debug, Serialize, JsonSchema)]
struct Told {
    #[schemars(with = "String")]
    prediction: Uuid,
    row: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// When it was reported, the last time.
    at: Timestamp,
}

impl From<(Outcome, Timestamp)> for Told {
    fn from((Outcome { prediction, row, came }, at): (Outcome, Timestamp)) -> Self {
        let (value, label) = came.parts();
        Self { prediction, row, value, label, at }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Outcomes {
    /// In the order in which their predictions were made, at most 1,000; the last is where the next page
    /// begins.
    outcomes: Vec<Told>,
}

async fn outcomes(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<EndpointPath, Which>,
) -> Result<Ok200<Outcomes>> {
    let home = home(&input.path, &s, &ctx, &PREDICTION_READ).await?;
    let Which { prediction, after, after_row } = input.query;
    let wanted = Wanted { prediction, after: after.map(|after| (after, after_row)) };
    let found = s.predictions().page_of_outcomes(&ctx, &home, wanted).await?;
    Ok(Ok200(Outcomes { outcomes: found.into_iter().map(Told::from).collect() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Report {
    #[schemars(length(min = 1, max = 1000))]
    outcomes: Vec<Outcome>,
}

/// How many were put down, and how many of them for the first time.
#[derive(Debug, Serialize, JsonSchema)]
struct Reported {
    outcomes: usize,
    new: usize,
}

async fn report(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<EndpointPath, (), Report>,
) -> Result<Ok200<Reported>> {
    let project = input.path.project(&s, &ctx).await?;
    let endpoint = s.seen(&ctx, &project, &input.path.name, &PREDICTION_REPORT).await?;
    let (home, id) = (endpoint.home(&project), project.id);
    let counted = move |tx: &mut Tx<'_>, outcomes: &[Outcome], first: &[bool]| {
        rollout::outcomes::count(tx, id, &endpoint, outcomes, first)
    };
    let first = s.predictions().report(&ctx, &home, input.body.outcomes, counted).await?;
    let new = first.iter().filter(|first| **first).count();
    Ok(Ok200(Reported { outcomes: first.len(), new }))
}
