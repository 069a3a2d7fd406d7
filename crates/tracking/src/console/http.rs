//! Console logs over HTTP: bytes in, bytes out.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request};
use axum::response::{IntoResponse, Response};
use axum::{body, routing};
use falaj_base::{Ctx, Error, Result, code};
use falaj_web::{Doc, Endpoint, Routes, problem_response, query};
use http::{Method, StatusCode, header};
use serde::Deserialize;

use super::service::Wanted;
use crate::native::{Native, RUN_LOG, RunPath, run_path};
use crate::{RUN_READ, RUN_WRITE};

/// The length of the whole log, in replies.
const SIZE: &str = "x-falaj-log-size";
/// Where the part that is shown begins.
const START: &str = "x-falaj-log-start";

pub(crate) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    let (reading, appending) = (native.clone(), native.clone());
    let get = routing::get(move |Extension(ctx), path, RawQuery(query)| {
        show(reading.clone(), ctx, path, query)
    });
    let post = routing::post(move |Extension(ctx), path, RawQuery(query), request| {
        append(appending.clone(), ctx, path, query, request)
    });
    Routes::new(native.clone())
        .raw(Method::GET, RUN_LOG, &RUN_READ, SHOW, get)
        .raw(Method::POST, RUN_LOG, &RUN_WRITE, APPEND, post)
        .into()
}

const SHOW: Doc = Doc {
    summary: "Read a run's console log, or a part of it",
    takes: None,
    gives: Some("application/octet-stream"),
    status: 200,
    query: &[
        ("offset", "Where to begin, in bytes; 0 if absent"),
        ("tail", "The last so many bytes instead"),
        ("limit", "How many bytes at most"),
    ],
};

const APPEND: Doc = Doc {
    summary: "Append to a run's console log",
    takes: Some("application/octet-stream"),
    gives: Some("application/json"),
    status: 200,
    query: &[("offset", "Where the piece begins: the `size` of the reply before, first 0")],
};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    offset: Option<u64>,
    tail: Option<u64>,
    limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendQuery {
    offset: u64,
}

async fn show(
    n: Arc<Native>,
    ctx: Ctx,
    path: Result<Path<RunPath>, PathRejection>,
    text: Option<String>,
) -> Response {
    let answer = async {
        let path = run_path(path)?;
        let asked: ShowQuery = query(text.as_deref().unwrap_or(""))?;
        let wanted = match (asked.offset, asked.tail) {
            (Some(_), Some(tail)) => {
                return Err(Error::invalid("tail", tail, "absent where `offset` is set"));
            }
            (offset, None) => Wanted::From(offset.unwrap_or(0)),
            (None, Some(tail)) => Wanted::Last(tail),
        };
        let call = n.call(&ctx, &path.tenant, &path.project).await?;
        n.tracking().read_log(&call, &path.run, wanted, asked.limit).await
    };
    match answer.await {
        Ok(span) => {
            let headers = [
                (header::CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
                (header::CACHE_CONTROL.as_str(), "no-store".to_owned()),
                (SIZE, span.size.to_string()),
                (START, span.start.to_string()),
            ];
            (StatusCode::OK, headers, span.bytes).into_response()
        }
        Err(error) => problem_response(&error),
    }
}

async fn append(
    n: Arc<Native>,
    ctx: Ctx,
    path: Result<Path<RunPath>, PathRejection>,
    text: Option<String>,
    request: Request,
) -> Response {
    let answer = async {
        let path = run_path(path)?;
        let asked: AppendQuery = query(text.as_deref().unwrap_or(""))?;
        let call = n.call(&ctx, &path.tenant, &path.project).await?;
        let bytes = piece(&n, request).await?;
        n.tracking().append_log(&call, &path.run, asked.offset, bytes).await
    };
    match answer.await {
        Ok(piece) => axum::Json(piece).into_response(),
        Err(error) => problem_response(&error),
    }
}

/// The body, which must fit a piece.
async fn piece(n: &Native, request: Request) -> Result<Vec<u8>> {
    let most = n.tracking().config().console.max_piece.as_usize();
    let read = body::to_bytes(request.into_body(), most).await;
    read.map(|bytes| bytes.to_vec()).map_err(|broken| {
        let text = format!("a piece of a log has at most {most} bytes, and all of them arrive");
        Error::new(&code::TOO_LARGE, text).at("body").caused_by(broken)
    })
}
