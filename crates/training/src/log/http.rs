//! `/api/jobs/{job_id}/logs`: bytes out.

use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, Result, code};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::{Doc, Endpoint, query};
use http::{Method, header};
use serde::Deserialize;

use super::service::Wanted;
use crate::job::http::At;
use crate::{JOB_READ, Training};

const LOGS: &str = "/api/jobs/{job_id}/logs";
const LIMIT: usize = 256 << 10;

/// Where the piece begins.
const START: &str = "x-falaj-log-start";
/// Of which start it is.
const ATTEMPT: &str = "x-falaj-attempt";
/// The state of the task.
const STATE: &str = "x-falaj-state";
/// Whether nothing more of that start comes.
const DONE: &str = "x-falaj-log-done";

const DOC: Doc = Doc {
    summary: "Read the output of a rank of a job, or wait for more of it",
    takes: None,
    gives: Some("application/octet-stream"),
    status: 200,
    query: &[
        ("task", "Which task of an array; 0 if absent"),
        ("attempt", "Which start of it; the last if absent"),
        ("rank", "Which rank; 0 if absent"),
        ("offset", "Where to begin, in bytes; 0 if absent"),
        ("limit", "How many bytes at most"),
        ("wait", "How many seconds to wait for something to show, at most 20; 0 if absent"),
    ],
};

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places).stream(Method::GET, LOGS, &JOB_READ, DOC, show).into()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    task: u32,
    attempt: Option<u32>,
    rank: u32,
    offset: u64,
    limit: Option<usize>,
    wait: u64,
}

async fn show(s: Arc<Training>, call: Call, mut request: Request) -> Result<Response> {
    let Path(at) = request
        .extract_parts::<Path<At>>()
        .await
        .map_err(|bad| Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad))?;
    s.seen(&call, &at.job_id, &JOB_READ).await?;
    let asked: Asked = query(request.uri().query().unwrap_or_default())?;
    let wanted = Wanted {
        task: asked.task,
        attempt: asked.attempt,
        rank: asked.rank,
        offset: asked.offset,
        limit: asked.limit.unwrap_or(LIMIT),
        wait: Duration::from_secs(asked.wait),
    };
    let piece = s.log(&call, &at.job_id, wanted).await?;
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
        (header::CACHE_CONTROL.as_str(), "no-store".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS.as_str(), "nosniff".to_owned()),
        (START, piece.start.to_string()),
        (ATTEMPT, piece.attempt.to_string()),
        (STATE, piece.state.as_str().to_owned()),
        (DONE, piece.done.to_string()),
    ];
    Ok((headers, piece.bytes).into_response())
}
