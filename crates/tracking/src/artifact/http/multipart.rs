//! Uploads in parts, and where to fetch a file in ranges: both answered with signed URLs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, refused, required_text};
use falaj_mlflow::{Api, Call, Places, wire};
use falaj_web::Endpoint;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::proxy::path;
use super::signed::{FILE, PART};
use super::{JSON, Signing, doc};
use crate::artifact::ArtifactPath;
use crate::artifact::grant::{File, Grant, Issuer, What};
use crate::artifact::upload::Sent;
use crate::experiment::http::Nothing;
use crate::{RUN_READ, RUN_WRITE};

const CREATE: &str = "/api/2.0/mlflow-artifacts/mpu/create/{*path}";
const COMPLETE: &str = "/api/2.0/mlflow-artifacts/mpu/complete/{*path}";
const ABORT: &str = "/api/2.0/mlflow-artifacts/mpu/abort/{*path}";
const PRESIGNED: &str = "/api/2.0/mlflow-artifacts/presigned/{*path}";

pub(super) fn routes(signing: Arc<Signing>, places: Places) -> Vec<Endpoint> {
    let doc = |summary| doc(summary, Some(JSON), Some(JSON));
    let asked = super::doc("Ask where a file can be fetched in ranges", None, Some(JSON));
    let create_doc = doc("Begin an upload in parts");
    let complete_doc = doc("Complete an upload in parts");
    let abort_doc = doc("Abort an upload in parts");
    Api::new(signing, places)
        .stream(Method::POST, CREATE, &RUN_WRITE, create_doc, create)
        .stream(Method::POST, COMPLETE, &RUN_WRITE, complete_doc, complete)
        .stream(Method::POST, ABORT, &RUN_WRITE, abort_doc, abort)
        .stream(Method::GET, PRESIGNED, &RUN_READ, asked, presigned)
        .into()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Create {
    /// The file as the sender calls it; only its last part counts.
    path: Option<String>,
    #[serde(alias = "numParts", deserialize_with = "wire::int")]
    num_parts: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Created {
    upload_id: String,
    credentials: Vec<Credential>,
}

/// Where to send a part.
#[derive(Debug, Serialize)]
struct Credential {
    url: String,
    part_number: u32,
    headers: BTreeMap<String, String>,
}

async fn create(s: Arc<Signing>, call: Call, mut request: Request) -> Result<Response> {
    let folder = path(&mut request).await?;
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let body: Create = wire::read(whole).await?;
    let path = in_folder(&folder, body.path)?;
    let asked = body.num_parts.unwrap_or(1);
    let count = u32::try_from(asked)
        .map_err(|_| invalid("num_parts", &json!(asked), "it is not a number of parts"))?;
    let begun = s.tracking.begin_upload(&call, path, count).await?;
    let upload = begun.id.simple().to_string();
    let credentials = (1..=count).map(|no| {
        let grant = Grant::new(What::Part(upload.clone(), no), begun.expires_at);
        let url = s.urls.url(&parts, PART, &grant)?;
        Ok(Credential { url, part_number: no, headers: BTreeMap::new() })
    });
    let credentials = credentials.collect::<Result<_>>()?;
    Ok(Json(Created { upload_id: upload, credentials }).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Complete {
    path: Option<String>,
    #[serde(alias = "uploadId")]
    upload_id: Option<String>,
    parts: Vec<Part>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    #[serde(alias = "partNumber", deserialize_with = "wire::int")]
    part_number: Option<i64>,
    etag: Option<String>,
}

impl Part {
    fn read(self) -> Result<Sent> {
        let no = self.part_number.ok_or_else(|| missing("part_number"))?;
        let wrong = |_| invalid("part_number", &json!(no), "it is not the number of a part");
        let tag = self.etag.unwrap_or_default().trim_matches('"').to_owned();
        Ok(Sent { no: u32::try_from(no).map_err(wrong)?, tag })
    }
}

async fn complete(s: Arc<Signing>, call: Call, mut request: Request) -> Result<Response> {
    let folder = path(&mut request).await?;
    let body: Complete = wire::read(request).await?;
    if body.parts.is_empty() {
        return Err(missing("parts"));
    }
    let (path, upload) = (in_folder(&folder, body.path)?, upload_id(body.upload_id)?);
    let sent = body.parts.into_iter().map(Part::read).collect::<Result<_>>()?;
    s.tracking.complete_upload(&call, path, upload, sent).await?;
    Ok(Json(Nothing {}).into_response())
}

async fn abort(s: Arc<Signing>, call: Call, mut request: Request) -> Result<Response> {
    let folder = path(&mut request).await?;
    let body: Complete = wire::read(request).await?;
    let (path, upload) = (in_folder(&folder, body.path)?, upload_id(body.upload_id)?);
    s.tracking.abort_upload(&call, path, upload).await?;
    Ok(Json(Nothing {}).into_response())
}

/// Where a file can be fetched.
#[derive(Debug, Serialize)]
struct Presigned {
    url: String,
    headers: BTreeMap<String, String>,
    file_size: u64,
}

async fn presigned(s: Arc<Signing>, call: Call, mut request: Request) -> Result<Response> {
    let path = path(&mut request).await?;
    let (parts, _) = request.into_parts();
    let t = &s.tracking;
    let (artifact, content) = t.open_artifact(&call, &path).await?;
    let file = File {
        id: artifact.id.simple().to_string(),
        path: path.to_string(),
        tenant: call.place.tenant_id,
        project: call.place.id,
        by: Issuer::of(&call.ctx),
    };
    let until = t.db().now() + t.config().artifact.download_lifetime.get();
    let url = s.urls.url(&parts, FILE, &Grant::new(What::File(file), until))?;
    let answer = Presigned { url, headers: BTreeMap::new(), file_size: content.size() };
    Ok(Json(answer).into_response())
}

/// The file in the folder: clients name the one they send by its place on their own disk.
fn in_folder(folder: &ArtifactPath, sent: Option<String>) -> Result<ArtifactPath> {
    let sent = required_text("path", sent)?;
    folder.join(sent.rsplit(['/', '\\']).next().unwrap_or_default())
}

fn upload_id(text: Option<String>) -> Result<Uuid> {
    let text = required_text("upload_id", text)?;
    let wrong = |_| refused("The upload_id is not one that was given out").at("upload_id");
    Uuid::try_parse(&text).map_err(wrong)
}
