//! `/api/features/training-sets`.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::Response;
use falaj_base::{Error, Page, Result, code};
use falaj_mlflow::asked::{Nothing, Pages};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::download::Download;
use falaj_web::{Doc, Endpoint};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::set::TrainingSet;
use super::spec::Wanted;
use crate::{Features, TRAINING_SET_CREATE, TRAINING_SET_READ};

const SETS: &str = "/api/features/training-sets";
const SET: &str = "/api/features/training-sets/{id}";
const DATA: &str = "/api/features/training-sets/{id}/data";

const DOWNLOAD: Doc = Doc {
    summary: "Download a training set",
    takes: None,
    gives: Some("application/vnd.apache.parquet"),
    status: 200,
    query: &[],
};

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    let routes = Api::new(features, places)
        .post(SETS, &TRAINING_SET_CREATE, "Join features to moments", create)
        .get(SETS, &TRAINING_SET_READ, "List training sets", list)
        .at(Method::GET, SET, &TRAINING_SET_READ, "See a training set", show)
        .stream(Method::GET, DATA, &TRAINING_SET_READ, DOWNLOAD, download);
    let mut endpoints: Vec<Endpoint> = routes.into();
    for endpoint in &mut endpoints {
        // Moments come with no other call.
        endpoint.large = endpoint.method == Method::POST;
    }
    endpoints
}

async fn create(s: Arc<Features>, call: Call, wanted: Wanted) -> Result<TrainingSet> {
    s.create_training_set(&call.ctx, &call.place, wanted).await
}

async fn list(s: Arc<Features>, call: Call, asked: Pages) -> Result<Page<TrainingSet>> {
    s.training_sets(&call.ctx, &call.place, asked.query()?).await
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    id: String,
}

async fn show(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<TrainingSet> {
    let id = s.training_set_id(&call.ctx, &call.place, &at.id).await?;
    s.training_set(&call.ctx, &call.place, id).await
}

async fn download(s: Arc<Features>, call: Call, mut request: Request) -> Result<Response> {
    let Path(At { id: text }) = request
        .extract_parts::<Path<At>>()
        .await
        .map_err(|bad| Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad))?;
    let id = s.training_set_id(&call.ctx, &call.place, &text).await?;
    let (set, blob) = s.open_training_set(&call.ctx, &call.place, id).await?;
    let name = format!("{}.parquet", set.id);
    let extra = [("x-falaj-sha256", falaj_base::hex(blob.sha256()))];
    let download = Download {
        size: blob.size(),
        tag: &set.id.to_string(),
        content_type: "application/vnd.apache.parquet",
        file_name: &name,
        modified: set.finished_at.unwrap_or(set.created_at),
        extra: &extra,
    };
    download.answer(request.headers(), |part| Ok(Body::from_stream(blob.read_range(part)?)))
}
