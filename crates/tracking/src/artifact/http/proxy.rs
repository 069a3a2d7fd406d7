//! `/api/2.0/mlflow-artifacts/artifacts`: files by their whole path.

use std::sync::Arc;

use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::{Json, RequestExt};
use falaj_base::{Error, Result, code};
use falaj_mlflow::{Api, Call, Places};
use falaj_store::objects::Expected;
use falaj_web::Endpoint;
use falaj_web::upload::{announced, pieces};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::run::{Listed, PageQuery};
use super::serve::serve;
use super::{ANY, JSON, doc};
use crate::artifact::{ArtifactPath, media};
use crate::experiment::http::Nothing;
use crate::{ARTIFACT_DELETE, RUN_READ, RUN_WRITE, Tracking};

const FILES: &str = "/api/2.0/mlflow-artifacts/artifacts";
const FILE: &str = "/api/2.0/mlflow-artifacts/artifacts/{*path}";

pub(super) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    let put_doc = doc("Store an artifact, or replace it", Some(ANY), None);
    let get_doc = doc("Read an artifact, or a range of it", None, Some(ANY));
    let delete_doc = doc("Delete an artifact, or a folder of them", None, Some(JSON));
    Api::new(tracking, places)
        .get(FILES, &RUN_READ, "List a folder of artifacts", list)
        .stream(Method::PUT, FILE, &RUN_WRITE, put_doc, put)
        .stream(Method::GET, FILE, &RUN_READ, get_doc, get)
        .stream(Method::DELETE, FILE, &ARTIFACT_DELETE, delete_doc, delete)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct List {
    /// The folder; the whole project if absent.
    path: Option<String>,
    #[serde(flatten)]
    page: PageQuery,
}

async fn list(t: Arc<Tracking>, call: Call, query: List) -> Result<Listed> {
    let path = query.path.as_deref().map(|path| path.trim_end_matches('/'));
    let folder = path.filter(|path| !path.is_empty()).map(ArtifactPath::new).transpose()?;
    let listing = t.list_folder(&call, folder.as_ref(), query.page.read()?).await?;
    Ok(Listed::of(None, listing))
}

async fn put(t: Arc<Tracking>, call: Call, mut request: Request) -> Result<Response> {
    let path = path(&mut request).await?;
    let content_type = media::content_type(path.file_name(), request.headers());
    let expected = Expected { size: announced(request.headers()), sha256: None };
    let (content, limits) = (pieces(request.into_body()), t.artifact_limits());
    t.put_artifact(&call, path, content_type, content, expected, limits).await?;
    Ok(StatusCode::OK.into_response())
}

async fn get(t: Arc<Tracking>, call: Call, mut request: Request) -> Result<Response> {
    let path = path(&mut request).await?;
    let (artifact, content) = t.open_artifact(&call, &path).await?;
    serve(&artifact, &content, request.headers())
}

async fn delete(t: Arc<Tracking>, call: Call, mut request: Request) -> Result<Response> {
    let path = path(&mut request).await?;
    t.delete_artifacts(&call, &path).await?;
    Ok(Json(Nothing {}).into_response())
}

/// The path, decoded once and checked.
pub(super) async fn path(request: &mut Request) -> Result<ArtifactPath> {
    let Path(path) = request.extract_parts::<Path<String>>().await.map_err(|bad| {
        Error::new(&code::INVALID_INPUT, "Invalid path: it is not text").caused_by(bad)
    })?;
    ArtifactPath::new(path.strip_suffix('/').unwrap_or(&path))
}
