//! The route of a follower.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing;
use falaj_base::{Ctx, Error, Result};
use falaj_web::{Doc, Endpoint, Routes, Stopping, problem_response, query};
use http::{HeaderMap, Method};
use serde::Deserialize;

use super::cursor::Cursor;
use super::stream::{self, What};
use crate::RUN_READ;
use crate::native::{Native, RUN_FOLLOW, RunPath, run_path};

pub(crate) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    let streaming = native.clone();
    let follow = routing::get(
        move |Extension(ctx),
              stopping: Option<Extension<Stopping>>,
              path,
              headers,
              RawQuery(query)| {
            let stopping = stopping.map(|Extension(stopping)| stopping).unwrap_or_default();
            answer(streaming.clone(), ctx, stopping, path, headers, query)
        },
    );
    Routes::new(native.clone()).raw(Method::GET, RUN_FOLLOW, &RUN_READ, DOC, follow).into()
}

const DOC: Doc = Doc {
    summary: "Follow a run live (server-sent events)",
    takes: None,
    gives: Some("text/event-stream"),
    status: 200,
    query: &[
        (
            "what",
            "`status`, `metrics` and `log`, with commas between; status and metrics if absent",
        ),
        ("offset", "Where in the log to begin; the Last-Event-ID header goes on where it ended"),
    ],
};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FollowQuery {
    what: Option<String>,
    offset: Option<u64>,
}

async fn answer(
    n: Arc<Native>,
    ctx: Ctx,
    stopping: Stopping,
    path: Result<Path<RunPath>, PathRejection>,
    headers: HeaderMap,
    text: Option<String>,
) -> Response {
    let answer = async {
        let path = run_path(path)?;
        let asked: FollowQuery = query(text.as_deref().unwrap_or(""))?;
        let what = what(asked.what.as_deref().unwrap_or("status,metrics"))?;
        let seen = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
        let mut cursor = seen.map(str::parse::<Cursor>).transpose()?.unwrap_or_default();
        if seen.is_none() {
            cursor.log = asked.offset.unwrap_or(0);
        }
        let call = n.call(&ctx, &path.tenant, &path.project).await?;
        let home = n.tracking().home(&call, &path.run, &RUN_READ).await?;
        let seat = n.seats().take(ctx.principal.id, &n.tracking().config().follow)?;
        Ok(stream::follow(&n, &home, what, cursor, stopping, seat))
    };
    answer.await.unwrap_or_else(|error| problem_response(&error))
}

fn what(text: &str) -> Result<What> {
    let mut what = What::default();
    for word in text.split(',') {
        match word.trim() {
            "status" => what.status = true,
            "metrics" => what.metrics = true,
            "log" => what.log = true,
            other => {
                return Err(Error::invalid("what", other, "`status`, `metrics` or `log`"));
            }
        }
    }
    Ok(what)
}
