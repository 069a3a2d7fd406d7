//! Where OpenTelemetry's exporters send spans: `POST /v1/traces`.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result, code};
use falaj_mlflow::error::refused;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::{Doc, Endpoint};
use http::{HeaderMap, Method, StatusCode, header};
use prost::Message;
use serde_json::json;

use super::message::{ExportResponse, PartialSuccess};
use super::read::{Limits, from_json, from_protobuf};
use crate::trace::Logged;
use crate::{TRACE_WRITE, Traces, TracesConfig};

/// Which experiment, and which run, the spans belong to.
pub(super) const EXPERIMENT: &str = "x-mlflow-experiment-id";
pub(super) const RUN: &str = "x-mlflow-run-id";

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    let doc = Doc {
        summary: "Log spans, as OpenTelemetry sends them: as JSON or as protobuf",
        takes: Some(JSON),
        gives: Some(JSON),
        status: 200,
        ..Doc::default()
    };
    Api::new(traces, places).stream(Method::POST, "/v1/traces", &TRACE_WRITE, doc, export).into()
}

async fn export(t: Arc<Traces>, call: Call, request: Request) -> Result<Response> {
    let json = is_json(request.headers())?;
    let Some(experiment) = named(request.headers(), EXPERIMENT)? else {
        let text = format!("the header {EXPERIMENT} must name the experiment of the spans");
        return unusable(text);
    };
    let run = named(request.headers(), RUN)?;
    let body: Bytes = request.extract().await.map_err(|rejection| {
        Error::new(&code::TOO_LARGE, "the body is larger than this route accepts")
            .caused_by(rejection)
    })?;
    let limits = limits(t.config());
    let batch = if json { from_json(&body, &limits)? } else { from_protobuf(&body, &limits)? };
    if let Some(why) = batch.why.as_ref().filter(|_| batch.spans.is_empty()) {
        return unusable(format!("Cannot convert OpenTelemetry span to MLflow span: {why}"));
    }
    let logged = t.log_spans(&call, experiment.parse()?, batch, run).await?;
    answer(logged, json)
}

pub(super) fn limits(config: &TracesConfig) -> Limits {
    Limits {
        spans: config.max_batch_spans,
        span_size: config.max_span_size.as_usize(),
        span_parts: config.max_span_parts,
    }
}

/// A request that can be read and means nothing is answered with 422, as in MLflow.
fn unusable(message: String) -> Result<Response> {
    let body = json!({ "error_code": "INVALID_PARAMETER_VALUE", "message": message });
    Response::builder()
        .status(StatusCode::UNPROCESSABLE_ENTITY)
        .header(header::CONTENT_TYPE, JSON)
        .body(Body::from(body.to_string()))
        .map_err(Error::internal)
}

fn is_json(headers: &HeaderMap) -> Result<bool> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = sent.and_then(|sent| sent.split(';').next()).map(str::trim).unwrap_or_default();
    match media.to_ascii_lowercase().as_str() {
        PROTOBUF => Ok(false),
        JSON => Ok(true),
        _ => {
            let shown: String = sent.unwrap_or("None").chars().take(100).collect();
            Err(refused(format!("Invalid Content-Type: {shown}. Expected: {PROTOBUF} or {JSON}"))
                .at("content-type"))
        }
    }
}

pub(super) fn named(headers: &HeaderMap, name: &'static str) -> Result<Option<String>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().ok().map(str::trim).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| {
        Error::new(&code::INVALID_INPUT, format!("the header {name} is not an id")).at(name)
    })?;
    Ok(Some(text.to_owned()))
}

/// Nothing, or how many spans were left out and why.
pub(super) fn partial(logged: Logged) -> Option<PartialSuccess> {
    (logged.rejected > 0).then(|| PartialSuccess {
        rejected_spans: i64::try_from(logged.rejected).unwrap_or(i64::MAX),
        error_message: logged.why.unwrap_or_default(),
    })
}

fn answer(logged: Logged, json: bool) -> Result<Response> {
    let partial = partial(logged);
    let (media, body) = if json {
        let body = partial.map_or_else(
            || json!({}),
            |partial| {
                json!({ "partialSuccess": {
                    "rejectedSpans": partial.rejected_spans.to_string(),
                    "errorMessage": partial.error_message,
                }})
            },
        );
        (JSON, body.to_string().into_bytes())
    } else {
        (PROTOBUF, ExportResponse { partial_success: partial }.encode_to_vec())
    };
    Response::builder()
        .header(header::CONTENT_TYPE, media)
        .body(Body::from(body))
        .map_err(Error::internal)
}
