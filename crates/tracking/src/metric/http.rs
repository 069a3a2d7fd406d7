//! Metric histories over the MLflow protocol.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, Result};
use falaj_mlflow::error::{invalid, refused, required_text};
use falaj_mlflow::{Api, Call, Places, asked, wire as read};
use falaj_web::{Doc, Endpoint};
use futures::StreamExt;
use http::{Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::history::{HistoryCursor, Steps};
use super::point::Point;
use super::sample::Sampling;
use crate::run::http::run_id;
use crate::run::wire::MetricValue;
use crate::{RUN_READ, Tracking};

/// The most runs in one bulk request, points in one bulk reply, and points of a run in a chart.
const MOST_RUNS: usize = 100;
const MOST_IN_BULK: usize = 25_000;
const MOST_IN_CHART: i64 = 2500;

pub(crate) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    Api::new(tracking, places)
        .stream(Method::GET, HISTORY, &RUN_READ, HISTORY_DOC, history)
        .get(
            "/api/2.0/mlflow/metrics/get-history-bulk",
            &RUN_READ,
            "Read a metric's history in several runs",
            bulk,
        )
        .get(
            "/api/2.0/mlflow/metrics/get-history-bulk-interval",
            &RUN_READ,
            "Sample a metric's history in several runs, for a chart",
            interval,
        )
        .into()
}

const HISTORY: &str = "/api/2.0/mlflow/metrics/get-history";

const HISTORY_DOC: Doc = Doc {
    summary: "Read a metric's history",
    takes: None,
    gives: Some("application/json"),
    status: 200,
    query: &[
        ("run_id", "The run"),
        ("run_uuid", "The same, as old clients call it"),
        ("metric_key", "The metric"),
        ("max_results", "How many points at most; all of them if absent"),
        ("page_token", "The `next_page_token` of the page before"),
    ],
};

/// How many points of a history are held at a time.
const AT_ONCE: usize = 10_000;
/// About what a point takes as JSON.
const POINT_TEXT: usize = 80;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct History {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "runUuid")]
    run_uuid: Option<String>,
    #[serde(alias = "metricKey")]
    metric_key: Option<String>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Points {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

/// A page, or all of it. More than a few points are sent as they are read, never held as a whole.
async fn history(t: Arc<Tracking>, call: Call, request: Request) -> Result<Response> {
    let query: History = read::read(request).await?;
    let run = run_id(query.run_id, query.run_uuid)?;
    let key = required_text("metric_key", query.metric_key)?;
    let wanted = match query.max_results {
        None => usize::MAX,
        Some(limit) => usize::try_from(limit).ok().filter(|limit| *limit > 0).ok_or_else(|| {
            invalid("max_results", &json!(limit), "it must be a positive integer")
        })?,
    };
    let after = query.page_token.filter(|token| !token.is_empty());
    let after = after.map(|token| token.parse()).transpose()?;
    let page = t.metric_history(&call, &run, &key, after, wanted.min(AT_ONCE)).await?;
    let left = wanted - page.points.len();
    match page.next {
        Some(next) if left > 0 => Ok(long(Rest { t, call, run, key, left, next }, page.points)),
        next => Ok(Json(Points {
            metrics: page.points.into_iter().map(|point| shape(&key, point, None)).collect(),
            next_page_token: next.map(|next| next.to_string()),
        })
        .into_response()),
    }
}

/// What is still to be read of a history.
struct Rest {
    t: Arc<Tracking>,
    call: Call,
    run: String,
    key: String,
    /// How many more points are wanted; at least one.
    left: usize,
    next: HistoryCursor,
}

impl Rest {
    /// The text of more points with a comma before it, and after the last of them the end of the
    /// reply.
    async fn more(mut self) -> Result<(Bytes, Option<Self>)> {
        let Self { t, call, run, key, .. } = &self;
        let limit = self.left.min(AT_ONCE);
        let page = t.metric_history(call, run, key, Some(self.next), limit).await?;
        let mut text = Vec::with_capacity(page.points.len() * POINT_TEXT);
        list(&mut text, key, &page.points)?;
        self.left -= page.points.len();
        match page.next {
            Some(next) if self.left > 0 => {
                self.next = next;
                return Ok((text.into(), Some(self)));
            }
            Some(next) => text.extend(format!(r#"],"next_page_token":"{next}"}}"#).into_bytes()),
            None => text.extend(b"]}"),
        }
        Ok((text.into(), None))
    }
}

/// A reply that begins with these points and goes on with the rest. If that fails halfway, the
/// reply breaks off, which no reader takes for its end.
fn long(rest: Rest, first: Vec<Point>) -> Response {
    let mut text = Vec::with_capacity(first.len() * POINT_TEXT);
    text.extend(br#"{"metrics":["#);
    let head = list(&mut text, &rest.key, &first).map(|()| Bytes::from(text));
    let pieces = futures::stream::once(async { head }).chain(futures::stream::try_unfold(
        Some(rest),
        async |rest| match rest {
            Some(rest) => rest.more().await.map(Some),
            None => Ok(None),
        },
    ));
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}

/// Points as JSON, with a comma before each but the first of a list.
fn list(text: &mut Vec<u8>, key: &str, points: &[Point]) -> Result<()> {
    for point in points {
        if text.last() != Some(&b'[') {
            text.push(b',');
        }
        serde_json::to_writer(&mut *text, &shape(key, *point, None)).map_err(Error::internal)?;
    }
    Ok(())
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Bulk {
    #[serde(deserialize_with = "read::list")]
    run_id: Vec<String>,
    metric_key: Option<String>,
    #[serde(deserialize_with = "read::int")]
    max_results: Option<i64>,
}

/// Unlike elsewhere, an empty list is told, as in MLflow.
#[derive(Debug, Serialize, JsonSchema)]
struct BulkPoints {
    metrics: Vec<MetricValue>,
}

async fn bulk(t: Arc<Tracking>, call: Call, query: Bulk) -> Result<BulkPoints> {
    if query.run_id.is_empty() {
        return Err(refused("GetMetricHistoryBulk request must specify at least one run_id."));
    }
    require_few("GetMetricHistoryBulk request cannot specify more than", &query.run_id)?;
    let key = query
        .metric_key
        .filter(|key| !key.is_empty())
        .ok_or_else(|| refused("GetMetricHistoryBulk request must specify a metric_key."))?;
    let limit = query.max_results.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(MOST_IN_BULK).min(MOST_IN_BULK);
    let found = t.metric_histories(&call, &query.run_id, &key, limit).await?;
    Ok(BulkPoints { metrics: many(&key, found).metrics })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Interval {
    #[serde(alias = "runIds", deserialize_with = "read::list")]
    run_ids: Vec<String>,
    #[serde(alias = "metricKey")]
    metric_key: Option<String>,
    #[serde(alias = "startStep", deserialize_with = "read::int")]
    start_step: Option<i64>,
    #[serde(alias = "endStep", deserialize_with = "read::int")]
    end_step: Option<i64>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    /// `spikes` keeps the lowest and highest point of every stretch.
    sampling: Option<String>,
}

/// The same question in another envelope.
pub(crate) async fn ask(t: Arc<Tracking>, call: &Call, input: &[u8]) -> Result<serde_json::Value> {
    asked(t, call, input, interval).await
}

async fn interval(t: Arc<Tracking>, call: Call, query: Interval) -> Result<Points> {
    if query.run_ids.is_empty() {
        return Err(falaj_mlflow::error::missing("run_ids"));
    }
    require_few("GetMetricHistoryBulkInterval request must specify at most", &query.run_ids)?;
    let key = required_text("metric_key", query.metric_key)?;
    let steps = match (query.start_step, query.end_step) {
        (None, None) => Steps::ALL,
        (Some(first), Some(last)) if first <= last => Steps { first, last },
        (Some(first), Some(last)) => {
            return Err(refused(format!(
                "end_step must be greater than start_step. Found start_step={first} and \
                 end_step={last}."
            )));
        }
        _ => {
            return Err(refused(
                "If either start step or end step are specified, both must be specified.",
            ));
        }
    };
    let max = query.max_results.unwrap_or(MOST_IN_CHART);
    if !(1..=MOST_IN_CHART).contains(&max) {
        let text = format!("max_results must be between 1 and {MOST_IN_CHART}.");
        return Err(refused(text).at("max_results"));
    }
    let max = usize::try_from(max).map_err(Error::internal)?;
    let sampling = query.sampling.map_or(Ok(Sampling::default()), |text| text.parse())?;
    let found = t.sampled_histories(&call, &query.run_ids, &key, steps, (max, sampling)).await?;
    Ok(many(&key, found))
}

/// `bound` is what the original says before the number.
fn require_few(bound: &str, runs: &[String]) -> Result<()> {
    if runs.len() <= MOST_RUNS {
        return Ok(());
    }
    let count = runs.len();
    Err(refused(format!("{bound} {MOST_RUNS} run_ids. Received {count} run_ids.")))
}

fn many(key: &str, found: Vec<(String, Vec<Point>)>) -> Points {
    let metrics = found.into_iter().flat_map(|(run, points)| {
        points.into_iter().map(move |point| shape(key, point, Some(run.clone())))
    });
    Points { metrics: metrics.collect(), next_page_token: None }
}

fn shape(key: &str, point: Point, run_id: Option<String>) -> MetricValue {
    MetricValue { run_id, ..MetricValue::plain(key.to_owned(), point) }
}
