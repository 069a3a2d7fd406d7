//! Runs over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, required, required_text};
use falaj_mlflow::{Api, Call, Places, asked, wire as read};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::log::{Batch, LoggedMetric};
use super::run::RunStatus;
use super::service::NewRun;
use super::wire::{InfoShape, KeyValue, RunShape};
use crate::experiment::http::Nothing;
use crate::metric::Point;
use crate::{RUN_DELETE, RUN_READ, RUN_UNTAG, RUN_WRITE, Tracking};

pub(crate) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    Api::new(tracking, places)
        .post("/api/2.0/mlflow/runs/create", &RUN_WRITE, "Create a run", create)
        .get("/api/2.0/mlflow/runs/get", &RUN_READ, "See a run", get)
        .post("/api/2.0/mlflow/runs/update", &RUN_WRITE, "Change a run's status or name", update)
        .post("/api/2.0/mlflow/runs/delete", &RUN_DELETE, "Delete a run, recoverably", delete)
        .post("/api/2.0/mlflow/runs/restore", &RUN_DELETE, "Restore a deleted run", restore)
        .post_often(
            "/api/2.0/mlflow/runs/log-metric",
            &RUN_WRITE,
            "Log one metric value",
            log_metric,
        )
        .post_often("/api/2.0/mlflow/runs/log-parameter", &RUN_WRITE, "Log a parameter", log_param)
        .post_often(
            "/api/2.0/mlflow/runs/log-batch",
            &RUN_WRITE,
            "Log metrics, parameters and tags at once",
            log_batch,
        )
        .post("/api/2.0/mlflow/runs/log-model", &RUN_WRITE, "Note a logged model", log_model)
        .post_often("/api/2.0/mlflow/runs/set-tag", &RUN_WRITE, "Set a tag of a run", set_tag)
        .post("/api/2.0/mlflow/runs/delete-tag", &RUN_UNTAG, "Delete a tag of a run", delete_tag)
        .into()
}

/// A run is named by `run_id` or, by old clients, `run_uuid`.
pub(crate) fn run_id(run_id: Option<String>, run_uuid: Option<String>) -> Result<String> {
    required_text("run_id", run_id.filter(|id| !id.is_empty()).or(run_uuid))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    #[serde(alias = "userId")]
    user_id: Option<String>,
    #[serde(alias = "runName")]
    run_name: Option<String>,
    #[serde(alias = "startTime", deserialize_with = "read::int")]
    start_time: Option<i64>,
    tags: Vec<KeyValue>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    run: RunShape,
}

async fn create(t: Arc<Tracking>, call: Call, body: Create) -> Result<Shown> {
    let experiment = body.experiment_id.filter(|id| !id.is_empty());
    let tags = body.tags.into_iter().enumerate().map(|(at, tag)| tag.pair("tags", at));
    let new = NewRun {
        experiment: experiment.as_deref().unwrap_or("0").parse()?,
        name: body.run_name,
        user_id: body.user_id.unwrap_or_default(),
        start_time: body.start_time.unwrap_or_default(),
        tags: tags.collect::<Result<_>>()?,
    };
    let made = RunShape::from(t.create_run(&call, new).await?);
    Ok(Shown { run: RunShape { outputs: None, ..made } })
}

/// One run by its id.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ById {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "runUuid")]
    run_uuid: Option<String>,
}

impl ById {
    fn id(self) -> Result<String> {
        run_id(self.run_id, self.run_uuid)
    }
}

/// The same question in another envelope.
pub(crate) async fn ask(t: Arc<Tracking>, call: &Call, input: &[u8]) -> Result<serde_json::Value> {
    asked(t, call, input, get).await
}

async fn get(t: Arc<Tracking>, call: Call, query: ById) -> Result<Shown> {
    Ok(Shown { run: t.run(&call, &query.id()?).await?.into() })
}

async fn delete(t: Arc<Tracking>, call: Call, body: ById) -> Result<Nothing> {
    t.delete_run(&call, &body.id()?).await.map(|()| Nothing {})
}

async fn restore(t: Arc<Tracking>, call: Call, body: ById) -> Result<Nothing> {
    t.restore_run(&call, &body.id()?).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Update {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "runUuid")]
    run_uuid: Option<String>,
    status: Option<serde_json::Value>,
    #[serde(alias = "endTime", deserialize_with = "read::int")]
    end_time: Option<i64>,
    #[serde(alias = "runName")]
    run_name: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Updated {
    run_info: InfoShape,
}

async fn update(t: Arc<Tracking>, call: Call, body: Update) -> Result<Updated> {
    let run = run_id(body.run_id, body.run_uuid)?;
    let status = match body.status {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(text)) => Some(RunStatus::parse(&text)?),
        Some(other) => Some(RunStatus::parse(&other.to_string())?),
    };
    let info = t.update_run(&call, &run, status, body.end_time, body.run_name).await?;
    Ok(Updated { run_info: info.into() })
}

/// One metric value, in a batch or alone.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct MetricIn {
    key: Option<String>,
    #[serde(deserialize_with = "read::double")]
    value: Option<f64>,
    #[serde(deserialize_with = "read::int")]
    timestamp: Option<i64>,
    #[serde(deserialize_with = "read::int")]
    step: Option<i64>,
    #[serde(alias = "modelId")]
    model_id: Option<String>,
    #[serde(alias = "datasetName")]
    dataset_name: Option<String>,
    #[serde(alias = "datasetDigest")]
    dataset_digest: Option<String>,
}

impl MetricIn {
    fn read(self, path: impl Fn(&str) -> String) -> Result<LoggedMetric> {
        let key = self.key.filter(|key| !key.is_empty());
        Ok(LoggedMetric {
            key: key.ok_or_else(|| missing(&path("key")))?,
            point: Point::new(
                self.timestamp.ok_or_else(|| missing(&path("timestamp")))?,
                self.step.unwrap_or_default(),
                self.value.ok_or_else(|| missing(&path("value")))?,
            ),
            model: self.model_id.filter(|id| !id.is_empty()),
            dataset: self.dataset_name.zip(self.dataset_digest),
        })
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LogMetric {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "runUuid")]
    run_uuid: Option<String>,
    key: Option<String>,
    #[serde(deserialize_with = "read::double")]
    value: Option<f64>,
    #[serde(deserialize_with = "read::int")]
    timestamp: Option<i64>,
    #[serde(deserialize_with = "read::int")]
    step: Option<i64>,
    #[serde(alias = "modelId")]
    model_id: Option<String>,
    #[serde(alias = "datasetName")]
    dataset_name: Option<String>,
    #[serde(alias = "datasetDigest")]
    dataset_digest: Option<String>,
}

/// Written out rather than flattened: serde loses the name of a bad field inside what it flattens.
impl From<LogMetric> for MetricIn {
    fn from(body: LogMetric) -> Self {
        Self {
            key: body.key,
            value: body.value,
            timestamp: body.timestamp,
            step: body.step,
            model_id: body.model_id,
            dataset_name: body.dataset_name,
            dataset_digest: body.dataset_digest,
        }
    }
}

async fn log_metric(t: Arc<Tracking>, call: Call, body: LogMetric) -> Result<Nothing> {
    let run = run_id(body.run_id.clone(), body.run_uuid.clone())?;
    let metric = MetricIn::from(body).read(str::to_owned)?;
    let batch = Batch { single: true, metrics: vec![metric], ..Batch::default() };
    t.log(&call, &run, batch).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LogPair {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "runUuid")]
    run_uuid: Option<String>,
    key: Option<String>,
    value: Option<String>,
}

async fn log_param(t: Arc<Tracking>, call: Call, body: LogPair) -> Result<Nothing> {
    let run = run_id(body.run_id, body.run_uuid)?;
    let pair = (required_text("key", body.key)?, body.value.unwrap_or_default());
    let batch = Batch { single: true, params: vec![pair], ..Batch::default() };
    t.log(&call, &run, batch).await.map(|()| Nothing {})
}

async fn set_tag(t: Arc<Tracking>, call: Call, body: LogPair) -> Result<Nothing> {
    let run = run_id(body.run_id, body.run_uuid)?;
    let pair = (required_text("key", body.key)?, body.value.unwrap_or_default());
    let batch = Batch { single: true, tags: vec![pair], ..Batch::default() };
    t.log(&call, &run, batch).await.map(|()| Nothing {})
}

async fn delete_tag(t: Arc<Tracking>, call: Call, body: LogPair) -> Result<Nothing> {
    let run = run_id(body.run_id, body.run_uuid)?;
    let key = required_text("key", body.key)?;
    t.delete_run_tag(&call, &run, key).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LogBatch {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    metrics: Vec<MetricIn>,
    params: Vec<KeyValue>,
    tags: Vec<KeyValue>,
}

/// Only here MLflow tells an id that cannot be one from an id that is not there.
fn check_spelling(run: &str) -> Result<()> {
    let word = |letter: char| letter.is_alphanumeric() || "_-".contains(letter);
    let starts = run.starts_with(|first: char| first.is_ascii_alphanumeric());
    if starts && run.chars().all(word) && run.chars().count() <= 256 {
        return Ok(());
    }
    Err(invalid("run_id", &json!(run), "an id has 1 to 256 letters, digits, `_` and `-`"))
}

async fn log_batch(t: Arc<Tracking>, call: Call, body: LogBatch) -> Result<Nothing> {
    let run = required_text("run_id", body.run_id)?;
    check_spelling(&run)?;
    let metrics = body.metrics.into_iter().enumerate();
    let params = body.params.into_iter().enumerate().map(|(at, pair)| pair.pair("params", at));
    let tags = body.tags.into_iter().enumerate().map(|(at, pair)| pair.pair("tags", at));
    let batch = Batch {
        single: false,
        metrics: metrics
            .map(|(at, metric)| metric.read(|field| format!("metrics[{at}].{field}")))
            .collect::<Result<_>>()?,
        params: params.collect::<Result<_>>()?,
        tags: tags.collect::<Result<_>>()?,
    };
    t.log(&call, &run, batch).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LogModel {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    #[serde(alias = "modelJson")]
    model_json: Option<String>,
}

async fn log_model(t: Arc<Tracking>, call: Call, body: LogModel) -> Result<Nothing> {
    let run = required_text("run_id", body.run_id)?;
    let model = required("model_json", body.model_json)?;
    t.log_model_json(&call, &run, model).await.map(|()| Nothing {})
}
