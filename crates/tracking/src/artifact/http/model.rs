//! Files by the logged model they belong to.

use std::sync::Arc;

use axum::RequestExt;
use axum::extract::{Path, Request};
use axum::response::Response;
use falaj_base::{Error, Result, code};
use falaj_mlflow::error::refused;
use falaj_mlflow::{Api, Call, Places, wire};
use falaj_web::{Doc, Endpoint};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::ANY;
use super::run::{Listed, PageQuery};
use super::serve::serve;
use crate::artifact::{ArtifactPath, proxied_path};
use crate::{RUN_READ, Tracking};

const WHICH: &[(&str, &str)] = &[("artifact_file_path", "The file, from the model's root")];

pub(super) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    let doc = Doc {
        summary: "Read a file of a logged model",
        takes: None,
        gives: Some(ANY),
        status: 200,
        query: WHICH,
    };
    Api::new(tracking, places)
        .at(
            Method::GET,
            "/api/2.0/mlflow/logged-models/{model_id}/artifacts/directories",
            &RUN_READ,
            "List artifacts of a logged model",
            list,
        )
        .stream(
            Method::GET,
            "/api/2.0/mlflow/logged-models/{model_id}/artifacts/files",
            &RUN_READ,
            doc,
            get,
        )
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ById {
    model_id: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct List {
    artifact_directory_path: Option<String>,
    #[serde(flatten)]
    page: PageQuery,
}

async fn list(t: Arc<Tracking>, call: Call, path: ById, query: List) -> Result<Listed> {
    let (root, uri) = folder(&t, &call, &path.model_id).await?;
    let below = query.artifact_directory_path.as_deref();
    let listing = t.list_below(&call, &root, below, query.page.read()?).await?;
    Ok(Listed::of(Some(uri), listing))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    artifact_file_path: Option<String>,
}

async fn get(t: Arc<Tracking>, call: Call, mut request: Request) -> Result<Response> {
    let Path(ById { model_id }) = request
        .extract_parts()
        .await
        .map_err(|bad| Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad))?;
    let file: File = wire::from_query(request.uri().query().unwrap_or(""))?;
    let path = file.artifact_file_path.filter(|path| !path.is_empty()).ok_or_else(|| {
        refused("Request must include the \"artifact_file_path\" query parameter.")
    })?;
    let (root, _) = folder(&t, &call, &model_id).await?;
    let (artifact, content) = t.open_artifact(&call, &root.join(&path)?).await?;
    serve(&artifact, &content, request.headers())
}

/// The folder of a model that lies here, and its address.
async fn folder(t: &Tracking, call: &Call, model: &str) -> Result<(ArtifactPath, String)> {
    let uri = t.logged_model(call, model, false).await?.artifact_uri;
    let path = proxied_path(&uri)
        .ok_or_else(|| refused("the artifacts of this logged model lie outside this server"))?;
    Ok((ArtifactPath::new(path)?, uri))
}
