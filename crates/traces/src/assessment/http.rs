//! Assessments over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::{AssessmentShape, Body, Shown};
use crate::trace::wire::Nothing;
use crate::{TRACE_READ, TRACE_WRITE, Traces};

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    let all = "/api/3.0/mlflow/traces/{trace_id}/assessments";
    let one = "/api/3.0/mlflow/traces/{trace_id}/assessments/{assessment_id}";
    Api::new(traces, places)
        .at(Method::POST, all, &TRACE_WRITE, "Assess a trace", create)
        .at(Method::GET, one, &TRACE_READ, "See an assessment", get)
        .at(Method::PATCH, one, &TRACE_WRITE, "Change an assessment", update)
        .at(Method::DELETE, one, &TRACE_WRITE, "Delete an assessment", delete)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfTrace {
    trace_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct One {
    trace_id: String,
    assessment_id: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Empty {}

async fn create(t: Arc<Traces>, call: Call, path: OfTrace, body: Body) -> Result<Shown> {
    let new = body.assessment(&path.trace_id, t.tracking().now_ms())?;
    let made = t.assess(&call, &path.trace_id, new).await?;
    Ok(Shown { assessment: AssessmentShape::new(&path.trace_id, made) })
}

async fn get(t: Arc<Traces>, call: Call, path: One, _: Empty) -> Result<Shown> {
    let found = t.assessment(&call, &path.trace_id, &path.assessment_id).await?;
    Ok(Shown { assessment: AssessmentShape::new(&path.trace_id, found) })
}

async fn update(t: Arc<Traces>, call: Call, path: One, body: Body) -> Result<Shown> {
    let change = body.change()?;
    let changed = t.update_assessment(&call, &path.trace_id, &path.assessment_id, change).await?;
    Ok(Shown { assessment: AssessmentShape::new(&path.trace_id, changed) })
}

async fn delete(t: Arc<Traces>, call: Call, path: One, _: Empty) -> Result<Nothing> {
    t.delete_assessment(&call, &path.trace_id, &path.assessment_id).await.map(|()| Nothing {})
}
