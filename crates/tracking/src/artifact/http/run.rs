//! Files by the run they belong to.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, Result, code};
use falaj_mlflow::error::{invalid, refused, required_text};
use falaj_mlflow::{Api, Call, Places, asked, wire};
use falaj_store::objects::Expected;
use falaj_web::upload::{announced, pieces};
use falaj_web::{Doc, Endpoint};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ANY;
use super::serve::serve;
use crate::access::no_run;
use crate::artifact::{ArtifactPath, FileInfo, Limits, Listing, Pages, media, proxied_path};
use crate::experiment::http::Nothing;
use crate::run::http::run_id;
use crate::run::store as runs;
use crate::{RUN_READ, RUN_WRITE, Tracking};

/// The most that is taken by `upload-artifact`: it is meant for what a page sends.
const SMALL: u64 = 10 * 1024 * 1024;

const WHICH: &[(&str, &str)] = &[
    ("run_id", "The run"),
    ("run_uuid", "The run, by its old name"),
    ("path", "The file, from the run's root"),
];

pub(super) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    let doc = |summary, takes, gives| Doc { summary, takes, gives, status: 200, query: WHICH };
    let get_doc = doc("Read a file of a run", None, Some(ANY));
    let put_doc = doc("Store a small file of a run", Some(ANY), None);
    Api::new(tracking, places)
        .get("/api/2.0/mlflow/artifacts/list", &RUN_READ, "List artifacts of a run", list)
        .stream(Method::GET, "/get-artifact", &RUN_READ, get_doc, get)
        .stream(Method::POST, "/api/2.0/mlflow/upload-artifact", &RUN_WRITE, put_doc, upload)
        .post(
            "/api/2.0/mlflow/artifacts/presigned-upload-url",
            &RUN_WRITE,
            "Ask for an upload that goes around this server",
            presigned_upload,
        )
        .post(
            "/api/2.0/mlflow/artifacts/presigned-download-url",
            &RUN_READ,
            "Ask for a download that goes around this server",
            presigned_download,
        )
        .into()
}

/// Which part of a list is wanted.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PageQuery {
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
    /// How many entries at most; all of them if absent.
    #[serde(alias = "maxResults", deserialize_with = "wire::int")]
    max_results: Option<i64>,
}

impl PageQuery {
    pub fn read(self) -> Result<Pages> {
        let size = self.max_results.map(|size| match usize::try_from(size) {
            Ok(size @ 1..) => Ok(size),
            _ => Err(invalid("max_results", &json!(size), "it must be positive")),
        });
        Ok(Pages { size: size.transpose()?, token: self.page_token })
    }
}

/// A list as clients read it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Listed {
    #[serde(skip_serializing_if = "Option::is_none")]
    root_uri: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

impl Listed {
    #[must_use]
    pub fn of(root_uri: Option<String>, listing: Listing) -> Self {
        Self { root_uri, files: listing.files, next_page_token: listing.next }
    }
}

/// One run, and a path in it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct InRun {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "runUuid")]
    run_uuid: Option<String>,
    path: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct List {
    #[serde(flatten)]
    which: InRun,
    #[serde(flatten)]
    page: PageQuery,
}

/// The same question in another envelope.
pub(crate) async fn ask(t: Arc<Tracking>, call: &Call, input: &[u8]) -> Result<serde_json::Value> {
    asked(t, call, input, list).await
}

async fn list(t: Arc<Tracking>, call: Call, query: List) -> Result<Listed> {
    let run = run_id(query.which.run_id, query.which.run_uuid)?;
    let (root, uri) = t.run_folder(&call, &run, &RUN_READ).await?;
    let below = query.which.path.as_deref();
    let listing = t.list_below(&call, &root, below, query.page.read()?).await?;
    Ok(Listed::of(Some(uri), listing))
}

async fn get(t: Arc<Tracking>, call: Call, request: Request) -> Result<Response> {
    let which: InRun = wire::from_query(request.uri().query().unwrap_or(""))?;
    let run = run_id(which.run_id, which.run_uuid)?;
    let path = required_text("path", which.path)?;
    let (root, _) = t.run_folder(&call, &run, &RUN_READ).await?;
    let (artifact, content) = t.open_artifact(&call, &root.join(&path)?).await?;
    serve(&artifact, &content, request.headers())
}

async fn upload(t: Arc<Tracking>, call: Call, request: Request) -> Result<Response> {
    let which: InRun = wire::from_query(request.uri().query().unwrap_or(""))?;
    let run = which.run_uuid.or(which.run_id).filter(|run| !run.is_empty());
    let run = run.ok_or_else(|| refused("Request must specify run_uuid."))?;
    let path = which.path.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| refused("Request must specify path."))?;
    let size = announced(request.headers());
    if size.is_some_and(|size| size > SMALL) {
        return Err(too_large());
    }
    let (root, _) = t.run_folder(&call, &run, &RUN_WRITE).await?;
    let path = root.join(&path)?;
    let content_type = media::content_type(path.file_name(), request.headers());
    let limits = Limits { least: 1, most: SMALL };
    let (content, expected) = (pieces(request.into_body()), Expected { size, sha256: None });
    let put = t.put_artifact(&call, path, content_type, content, expected, limits).await;
    put.map_err(|error| if *error.code() == code::TOO_LARGE { too_large() } else { error })?;
    Ok(StatusCode::OK.into_response())
}

fn too_large() -> Error {
    refused("Artifact size is too large. Max size is 10MB.")
}

/// A file of a run or of a model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Presigned {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "modelId")]
    model_id: Option<String>,
    path: Option<String>,
    #[serde(deserialize_with = "wire::int")]
    expiration: Option<i64>,
}

/// Every byte passes through this server, which encrypts it and keeps account of it; the original
/// says the same of artifacts that it proxies, in these words.
async fn presigned_upload(t: Arc<Tracking>, call: Call, body: Presigned) -> Result<Nothing> {
    let run = body.run_id.filter(|run| !run.is_empty());
    let model = body.model_id.filter(|model| !model.is_empty());
    if run.is_some() == model.is_some() {
        return Err(refused("Exactly one of run_id and model_id must be provided."));
    }
    falaj_mlflow::names::check_path(&required_text("path", body.path)?)?;
    if let Some(run) = run {
        t.home(&call, &run, &RUN_WRITE).await?;
    }
    Err(refused(
        "Presigned upload is not supported for proxied artifact storage (artifact URI scheme: \
         mlflow-artifacts). This endpoint requires a direct cloud storage artifact URI.",
    ))
}

async fn presigned_download(t: Arc<Tracking>, call: Call, body: Presigned) -> Result<Nothing> {
    let run = required_text("run_id", body.run_id)?;
    falaj_mlflow::names::check_path(&required_text("path", body.path)?)?;
    let expiration = body.expiration.unwrap_or(900);
    if !(1..=604_800).contains(&expiration) {
        let text = format!("expiration must be between 1 and 604800 seconds (got {expiration}).");
        return Err(refused(text));
    }
    t.home(&call, &run, &RUN_READ).await?;
    Err(refused(
        "Presigned download is not supported for runs with proxied artifact storage (artifact URI \
         scheme: mlflow-artifacts). This endpoint requires a run with a direct cloud storage \
         artifact URI.",
    ))
}

impl Tracking {
    /// The folder of a run, if the caller may do `action` to the run, and the URI it is known by.
    pub async fn run_folder(
        &self,
        call: &Call,
        run: &str,
        action: &'static falaj_base::Action,
    ) -> Result<(ArtifactPath, String)> {
        let home = self.home(call, run, action).await?;
        let info = self.db().read(move |tx| runs::find(tx, home.run)).await?;
        let info = info.ok_or_else(|| no_run(run))?;
        let Some(folder) = proxied_path(&info.artifact_uri) else {
            let text = "The artifacts of this run are not kept by this server";
            return Err(refused(format!("{text}: {}", info.artifact_uri)));
        };
        Ok((ArtifactPath::new(folder)?, info.artifact_uri))
    }
}
