//! Traces over the MLflow protocol.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result};
use falaj_mlflow::error::{missing, required, required_text};
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_web::{Doc, Endpoint};
use http::{Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::delete::Which;
use super::read::Full;
use super::v2::{End, ShownV2, Start};
use super::wire::{InfoShape, Nothing, Shown, TraceIn, TraceShape};
use crate::span::shape;
use crate::{TRACE_DELETE, TRACE_READ, TRACE_UNTAG, TRACE_WRITE, Traces};

const V2: &str = "/api/2.0/mlflow/traces";
const V3: &str = "/api/3.0/mlflow/traces";

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    let info = "/api/3.0/mlflow/traces/{trace_id}";
    let tags = "/api/3.0/mlflow/traces/{trace_id}/tags";
    let tags_v2 = "/api/2.0/mlflow/traces/{trace_id}/tags";
    let one_v2 = "/api/2.0/mlflow/traces/{trace_id}";
    let info_v2 = "/api/2.0/mlflow/traces/{trace_id}/info";
    let (set, unset) = ("Set a tag of a trace", "Delete a tag of a trace");
    let file = Doc {
        summary: "Download the spans of a trace",
        gives: Some("application/octet-stream"),
        status: 200,
        query: &[("request_id", "The trace"), ("path", "An attachment of it")],
        ..Doc::default()
    };
    Api::new(traces, places)
        .post(V3, &TRACE_WRITE, "Log a trace", start)
        .at(Method::GET, info, &TRACE_READ, "See a trace", get_info)
        .get("/api/3.0/mlflow/traces/get", &TRACE_READ, "See a trace and its spans", get)
        .get("/api/3.0/mlflow/traces/batchGet", &TRACE_READ, "See traces and their spans", batch)
        .post("/api/3.0/mlflow/traces/batchGetInfos", &TRACE_READ, "See traces", batch_infos)
        .at(Method::PATCH, tags, &TRACE_WRITE, set, set_tag)
        .at(Method::DELETE, tags, &TRACE_UNTAG, unset, delete_tag)
        .at(Method::PATCH, tags_v2, &TRACE_WRITE, set, set_tag)
        .at(Method::DELETE, tags_v2, &TRACE_UNTAG, unset, delete_tag)
        .post("/api/3.0/mlflow/traces/delete-traces", &TRACE_DELETE, "Delete traces", delete)
        .post("/api/2.0/mlflow/traces/delete-traces", &TRACE_DELETE, "Delete traces", delete)
        .post("/api/2.0/mlflow/traces/link-to-run", &TRACE_WRITE, "Tie traces to a run", link)
        .post(
            "/api/2.0/mlflow/traces/link-prompts",
            &TRACE_WRITE,
            "Tie a trace to the prompts it used",
            link_prompts,
        )
        .post(V2, &TRACE_WRITE, "Start a trace", start_v2)
        .at(Method::PATCH, one_v2, &TRACE_WRITE, "End a trace", end_v2)
        .at(Method::GET, info_v2, &TRACE_READ, "See a trace", info_of_v2)
        .stream(Method::GET, "/api/2.0/mlflow/get-trace-artifact", &TRACE_READ, file, download)
        .stream(Method::GET, "/api/3.0/mlflow/get-trace-artifact", &TRACE_READ, file, download)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct StartBody {
    trace: Option<TraceIn>,
}

async fn start(t: Arc<Traces>, call: Call, body: StartBody) -> Result<Shown> {
    let info = required("trace", body.trace)?.trace_info;
    let new = required("trace.trace_info", info)?.read(t.tracking().now_ms())?;
    t.start_trace(&call, new).await.map(Shown::info)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ById {
    trace_id: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Empty {}

async fn get_info(t: Arc<Traces>, call: Call, path: ById, _: Empty) -> Result<Shown> {
    t.trace_info(&call, &path.trace_id).await.map(Shown::info)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Get {
    #[serde(alias = "traceId")]
    trace_id: Option<String>,
    /// Whether spans that are still to come may be missing.
    #[serde(alias = "allowPartial", deserialize_with = "partial")]
    allow_partial: Option<bool>,
}

/// The browser's `True` is `true` too.
fn partial<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    let text = serde_json::Value::deserialize(from)?;
    match &text {
        serde_json::Value::String(word) if word == "True" => Ok(Some(true)),
        serde_json::Value::String(word) if word == "False" => Ok(Some(false)),
        other => read::flag(other.clone()).map_err(serde::de::Error::custom),
    }
}

async fn get(t: Arc<Traces>, call: Call, query: Get) -> Result<Shown> {
    let id = required_text("trace_id", query.trace_id)?;
    let partial = query.allow_partial.unwrap_or_default();
    let found = t.full_trace(&call, &id, partial, shape::message_text).await?;
    Ok(Shown { trace: whole(found)? })
}

fn whole((trace, spans): Full) -> Result<TraceShape> {
    let spans = spans.into_iter().map(|span| RawValue::from_string(span).map_err(Error::internal));
    Ok(TraceShape { trace_info: trace.into(), spans: spans.collect::<Result<_>>()? })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Batch {
    #[serde(alias = "traceIds", deserialize_with = "read::list")]
    trace_ids: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FoundTraces {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    traces: Vec<TraceShape>,
}

async fn batch(t: Arc<Traces>, call: Call, query: Batch) -> Result<FoundTraces> {
    if query.trace_ids.is_empty() {
        return Err(missing("trace_ids"));
    }
    let found = t.full_traces(&call, &query.trace_ids).await?;
    Ok(FoundTraces { traces: found.into_iter().map(whole).collect::<Result<_>>()? })
}

#[derive(Debug, Serialize, JsonSchema)]
struct FoundInfos {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace_infos: Vec<InfoShape>,
}

async fn batch_infos(t: Arc<Traces>, call: Call, body: Batch) -> Result<FoundInfos> {
    if body.trace_ids.is_empty() {
        return Err(missing("trace_ids"));
    }
    let found = t.trace_infos(&call, &body.trace_ids).await?;
    Ok(FoundInfos { trace_infos: found.into_iter().map(InfoShape::from).collect() })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tag {
    key: Option<String>,
    value: Option<String>,
}

async fn set_tag(t: Arc<Traces>, call: Call, path: ById, body: Tag) -> Result<Nothing> {
    let key = required_text("key", body.key)?;
    let value = body.value.unwrap_or_default();
    t.tag_trace(&call, &path.trace_id, key, value).await.map(|()| Nothing {})
}

async fn delete_tag(t: Arc<Traces>, call: Call, path: ById, body: Tag) -> Result<Nothing> {
    let key = required_text("key", body.key)?;
    t.untag_trace(&call, &path.trace_id, key).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Delete {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    #[serde(alias = "maxTimestampMillis", deserialize_with = "read::int")]
    max_timestamp_millis: Option<i64>,
    #[serde(alias = "maxTraces", deserialize_with = "read::int")]
    max_traces: Option<i64>,
    #[serde(alias = "requestIds", deserialize_with = "read::list")]
    request_ids: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Deleted {
    traces_deleted: u64,
}

async fn delete(t: Arc<Traces>, call: Call, body: Delete) -> Result<Deleted> {
    let experiment = required_text("experiment_id", body.experiment_id)?.parse()?;
    let which = Which::new(body.request_ids, body.max_timestamp_millis, body.max_traces)?;
    Ok(Deleted { traces_deleted: t.delete_traces(&call, experiment, which).await? })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LinkBody {
    #[serde(alias = "traceIds", deserialize_with = "read::list")]
    trace_ids: Vec<String>,
    #[serde(alias = "runId")]
    run_id: Option<String>,
}

async fn link(t: Arc<Traces>, call: Call, body: LinkBody) -> Result<Nothing> {
    if body.trace_ids.is_empty() {
        return Err(missing("trace_ids"));
    }
    let run = required_text("run_id", body.run_id)?;
    t.link_to_run(&call, &body.trace_ids, &run).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct PromptsBody {
    #[serde(alias = "traceId")]
    trace_id: Option<String>,
    #[serde(alias = "promptVersions")]
    prompt_versions: Vec<PromptVersion>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct PromptVersion {
    name: Option<String>,
    version: Option<String>,
}

async fn link_prompts(t: Arc<Traces>, call: Call, body: PromptsBody) -> Result<Nothing> {
    let trace = required_text("trace_id", body.trace_id)?;
    if body.prompt_versions.is_empty() {
        return Err(missing("prompt_versions"));
    }
    let named = |prompt: PromptVersion| {
        let name = required_text("prompt_versions.name", prompt.name)?;
        let version = required_text("prompt_versions.version", prompt.version)?;
        Ok(format!("{name}/{version}"))
    };
    let prompts = body.prompt_versions.into_iter().map(named).collect::<Result<_>>()?;
    t.link_prompts(&call, &trace, prompts).await.map(|()| Nothing {})
}

async fn start_v2(t: Arc<Traces>, call: Call, body: Start) -> Result<ShownV2> {
    let experiment = required_text("experiment_id", body.experiment_id.clone())?.parse()?;
    t.start_trace_v2(&call, experiment, body).await.map(ShownV2::from)
}

async fn end_v2(t: Arc<Traces>, call: Call, path: ById, body: End) -> Result<ShownV2> {
    t.end_trace_v2(&call, &path.trace_id, body).await.map(ShownV2::from)
}

async fn info_of_v2(t: Arc<Traces>, call: Call, path: ById, _: Empty) -> Result<ShownV2> {
    t.trace_info(&call, &path.trace_id).await.map(|(trace, _)| trace.into())
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Download {
    #[serde(alias = "requestId")]
    request_id: Option<String>,
    path: Option<String>,
}

/// The spans as the file that older clients keep them in.
async fn download(t: Arc<Traces>, call: Call, request: Request) -> Result<Response> {
    let query: Download = read::from_query(request.uri().query().unwrap_or(""))?;
    let id = required_text("request_id", query.request_id)?;
    if query.path.is_some_and(|path| !path.is_empty()) {
        // Attachments lie with the experiment's other files, and are read there.
        t.trace_info(&call, &id).await?;
        return Err(Error::not_found("attachment", &id));
    }
    let (_, spans) = t.full_trace(&call, &id, true, shape::content).await?;
    let mut text = "{\"spans\": [".to_owned();
    for (at, span) in spans.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { ", " });
        text.push_str(span);
    }
    text.push_str("]}");
    Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_DISPOSITION, "attachment; filename=traces.json")
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .body(Body::from(text))
        .map_err(Error::internal)
}
