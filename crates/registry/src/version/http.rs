//! Versions over the MLflow protocol.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use falaj_base::Result;
use falaj_mlflow::error::{missing, required_text};
use falaj_mlflow::names::check_path;
use falaj_mlflow::{Api, Call, Places, asked, wire as read};
use falaj_tracking::artifact::http::serve;
use falaj_web::{Doc, Endpoint};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::search::VersionSearch;
use super::service::NewVersion;
use super::stage::Stage;
use super::version::parse_number;
use crate::wire::{KeyValue, Nothing, ShownVersion, VersionShape, limit, pairs};
use crate::{MODEL_DELETE, MODEL_PROMOTE, MODEL_READ, MODEL_UNTAG, MODEL_WRITE, Registry};

/// The most results in a page, and how many there are unless asked otherwise.
const MOST: i64 = 200_000;
const USUAL: i64 = 10_000;

const FILE: Doc = Doc {
    summary: "Read a file of a model version",
    takes: None,
    gives: Some("application/octet-stream"),
    status: 200,
    query: &[
        ("name", "The model"),
        ("version", "The version"),
        ("path", "The file, from the version's root"),
    ],
};

pub(crate) fn routes(registry: Arc<Registry>, places: Places) -> Vec<Endpoint> {
    let update = "/api/2.0/mlflow/model-versions/update";
    let delete_path = "/api/2.0/mlflow/model-versions/delete";
    let delete_tag = "/api/2.0/mlflow/model-versions/delete-tag";
    let latest_path = "/api/2.0/mlflow/registered-models/get-latest-versions";
    let latest_text = "See the newest version of each stage";
    Api::new(registry, places)
        .post("/api/2.0/mlflow/model-versions/create", &MODEL_WRITE, "Register a version", create)
        .get("/api/2.0/mlflow/model-versions/get", &MODEL_READ, "See a version", get)
        .get("/api/2.0/mlflow/model-versions/search", &MODEL_READ, "Search versions", search)
        .get(
            "/api/2.0/mlflow/model-versions/get-download-uri",
            &MODEL_READ,
            "See where the files of a version are",
            location,
        )
        .with_body(Method::PATCH, update, &MODEL_WRITE, "Describe a version", describe)
        .with_body(Method::DELETE, delete_path, &MODEL_DELETE, "Delete a version", delete)
        .post(
            "/api/2.0/mlflow/model-versions/transition-stage",
            &MODEL_PROMOTE,
            "Move a version to a stage",
            transition,
        )
        .post(
            "/api/2.0/mlflow/model-versions/set-tag",
            &MODEL_WRITE,
            "Set a tag of a version",
            set_tag,
        )
        .with_body(Method::DELETE, delete_tag, &MODEL_UNTAG, "Delete a tag of a version", untag)
        .get(latest_path, &MODEL_READ, latest_text, latest)
        .post(latest_path, &MODEL_READ, latest_text, latest)
        .stream(Method::GET, "/model-versions/get-artifact", &MODEL_READ, FILE, file)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    name: Option<String>,
    source: Option<String>,
    #[serde(alias = "runId")]
    run_id: Option<String>,
    tags: Vec<KeyValue>,
    #[serde(alias = "runLink")]
    run_link: Option<String>,
    description: Option<String>,
    #[serde(alias = "modelId")]
    model_id: Option<String>,
}

async fn create(r: Arc<Registry>, call: Call, body: Create) -> Result<ShownVersion> {
    let new = NewVersion {
        name: required_text("name", body.name)?,
        source: required_text("source", body.source)?,
        run_id: body.run_id,
        model_id: body.model_id,
        run_link: body.run_link.unwrap_or_default(),
        description: body.description.unwrap_or_default(),
        tags: pairs(body.tags)?,
    };
    r.create_version(&call, new).await.map(ShownVersion::from)
}

/// One version by its model's name and its number.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ByNumber {
    name: Option<String>,
    version: Option<String>,
}

/// Which version is meant.
fn which(name: Option<String>, version: Option<String>) -> Result<(String, i64)> {
    let name = required_text("name", name)?;
    Ok((name, parse_number(&required_text("version", version)?)?))
}

async fn get(r: Arc<Registry>, call: Call, query: ByNumber) -> Result<ShownVersion> {
    let (name, number) = which(query.name, query.version)?;
    r.version(&call.ctx, &call.place, &name, number).await.map(ShownVersion::from)
}

#[derive(Debug, Serialize, JsonSchema)]
struct Location {
    artifact_uri: String,
}

async fn location(r: Arc<Registry>, call: Call, query: ByNumber) -> Result<Location> {
    let name = required_text("name", query.name)?;
    let number = parse_number(&query.version.unwrap_or_default())?;
    let version = r.version(&call.ctx, &call.place, &name, number).await?;
    Ok(Location { artifact_uri: version.location })
}

async fn delete(r: Arc<Registry>, call: Call, body: ByNumber) -> Result<Nothing> {
    let (name, number) = which(body.name, body.version)?;
    r.delete_version(&call.ctx, &call.place, &name, number).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Describe {
    name: Option<String>,
    version: Option<String>,
    description: Option<String>,
}

async fn describe(r: Arc<Registry>, call: Call, body: Describe) -> Result<ShownVersion> {
    let (name, number) = which(body.name, body.version)?;
    let described =
        r.describe_version(&call.ctx, &call.place, (&name, number), body.description).await;
    described.map(ShownVersion::from)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Transition {
    name: Option<String>,
    version: Option<String>,
    stage: Option<String>,
    #[serde(alias = "archiveExistingVersions", deserialize_with = "read::flag")]
    archive_existing_versions: Option<bool>,
}

async fn transition(r: Arc<Registry>, call: Call, body: Transition) -> Result<ShownVersion> {
    let (name, number) = which(body.name, body.version)?;
    let stage = Stage::parse(&required_text("stage", body.stage)?)?;
    let archive = body.archive_existing_versions.unwrap_or_default();
    let moved = r.set_stage(&call.ctx, &call.place, (&name, number), stage, archive).await;
    moved.map(ShownVersion::from)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tag {
    name: Option<String>,
    version: Option<String>,
    key: Option<String>,
    value: Option<String>,
}

async fn set_tag(r: Arc<Registry>, call: Call, body: Tag) -> Result<Nothing> {
    let (name, number) = which(body.name, body.version)?;
    let tag = (required_text("key", body.key)?, body.value.unwrap_or_default());
    r.tag_version(&call.ctx, &call.place, (&name, number), tag).await.map(|()| Nothing {})
}

async fn untag(r: Arc<Registry>, call: Call, body: Tag) -> Result<Nothing> {
    let (name, number) = which(body.name, body.version)?;
    let key = required_text("key", body.key)?;
    r.untag_version(&call.ctx, &call.place, (&name, number), key).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Latest {
    name: Option<String>,
    #[serde(deserialize_with = "read::list")]
    stages: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_versions: Vec<VersionShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn latest(r: Arc<Registry>, call: Call, query: Latest) -> Result<Found> {
    let name = required_text("name", query.name)?;
    let stages: Vec<Stage> =
        query.stages.iter().map(|stage| Stage::parse(stage)).collect::<Result<_>>()?;
    let versions = r.latest_versions(&call.ctx, &call.place, &name, &stages).await?;
    let model_versions = versions.into_iter().map(VersionShape::from).collect();
    Ok(Found { model_versions, next_page_token: None })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Search {
    filter: Option<String>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy", deserialize_with = "read::list")]
    order_by: Vec<String>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

/// The same question in another envelope: the fields that `input` holds, as a JSON object.
pub async fn ask_versions(
    registry: &Registry,
    call: &Call,
    input: &[u8],
) -> Result<serde_json::Value> {
    asked(Arc::new(registry.clone()), call, input, search).await
}

async fn search(r: Arc<Registry>, call: Call, query: Search) -> Result<Found> {
    let search = VersionSearch {
        filter: query.filter,
        order_by: query.order_by,
        limit: limit(query.max_results, USUAL, MOST)?,
        page_token: query.page_token,
    };
    let (versions, next_page_token) = r.search_versions(&call.ctx, &call.place, search).await?;
    let model_versions = versions.into_iter().map(VersionShape::from).collect();
    Ok(Found { model_versions, next_page_token })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InVersion {
    name: Option<String>,
    version: Option<String>,
    path: Option<String>,
}

async fn file(r: Arc<Registry>, call: Call, request: Request) -> Result<Response> {
    let asked: InVersion = read::from_query(request.uri().query().unwrap_or(""))?;
    let (name, number) = which(asked.name, asked.version)?;
    let path = asked.path.filter(|path| !path.is_empty()).ok_or_else(|| missing("path"))?;
    check_path(&path)?;
    let (artifact, content) = r.open_version_file(&call, (&name, number), &path).await?;
    serve(&artifact, &content, request.headers())
}
