//! Runs as MLflow's clients write and read them.

use falaj_base::Result;
use falaj_mlflow::error::missing;
use falaj_mlflow::wire;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::{Run, RunInfo};
use crate::dataset::http::{InputsShape, OutputsShape, shapes};

/// A tag or a parameter.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct KeyValue {
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
}

impl KeyValue {
    /// The pair; an absent value is an empty one.
    pub(crate) fn pair(self, list: &str, at: usize) -> Result<(String, String)> {
        let key = self.key.filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| missing(&format!("{list}[{at}].key")))?;
        Ok((key, self.value.unwrap_or_default()))
    }
}

impl From<(String, String)> for KeyValue {
    fn from((key, value): (String, String)) -> Self {
        Self { key: Some(key), value: Some(value) }
    }
}

/// A metric as it is read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct MetricValue {
    pub(crate) key: String,
    #[serde(serialize_with = "wire::print_double")]
    pub(crate) value: f64,
    pub(crate) timestamp: i64,
    pub(crate) step: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dataset_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dataset_digest: Option<String>,
}

impl MetricValue {
    /// A value of a run's own metric.
    pub(crate) fn plain(key: String, point: crate::metric::Point) -> Self {
        Self {
            key,
            value: point.value(),
            timestamp: point.timestamp(),
            step: point.step(),
            run_id: None,
            model_id: None,
            dataset_name: None,
            dataset_digest: None,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InfoShape {
    pub(crate) run_uuid: String,
    pub(crate) run_id: String,
    pub(crate) run_name: String,
    pub(crate) experiment_id: String,
    pub(crate) user_id: String,
    pub(crate) status: &'static str,
    pub(crate) start_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_time: Option<i64>,
    pub(crate) artifact_uri: String,
    pub(crate) lifecycle_stage: &'static str,
}

impl From<RunInfo> for InfoShape {
    fn from(info: RunInfo) -> Self {
        let id = info.id.to_string();
        Self {
            run_uuid: id.clone(),
            run_id: id,
            run_name: info.name,
            experiment_id: info.experiment_id.to_string(),
            user_id: info.user_id,
            status: info.status.as_str(),
            start_time: info.start_time,
            end_time: info.end_time,
            artifact_uri: info.artifact_uri,
            lifecycle_stage: info.stage.as_str(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DataShape {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    params: Vec<KeyValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValue>,
}

/// A run, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunShape {
    pub(crate) info: InfoShape,
    pub(crate) data: DataShape,
    pub(crate) inputs: InputsShape,
    /// Absent where a run was just made, as in MLflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outputs: Option<OutputsShape>,
}

impl From<Run> for RunShape {
    fn from(run: Run) -> Self {
        let (inputs, outputs) = shapes(run.lineage);
        let metrics =
            run.data.metrics.into_iter().map(|(key, point)| MetricValue::plain(key, point));
        Self {
            info: run.info.into(),
            data: DataShape {
                metrics: metrics.collect(),
                params: run.data.params.into_iter().map(KeyValue::from).collect(),
                tags: run.data.tags.into_iter().map(KeyValue::from).collect(),
            },
            inputs,
            outputs: Some(outputs),
        }
    }
}
