//! Lineage over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{missing, refused, required, required_text, too_long};
use falaj_mlflow::{Api, Call, Places, asked, wire as read};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Dataset, DatasetInput, Lineage};
use crate::experiment::http::Nothing;
use crate::run::wire::KeyValue;
use crate::{RUN_READ, RUN_WRITE, Tracking};

/// The longest texts of a dataset, in characters, and the most datasets in one call.
const MAX_NAME: usize = 500;
const MAX_DIGEST: usize = 36;
const MAX_SOURCE: usize = 65_535;
const MAX_SCHEMA: usize = 1_048_575;
const MAX_PROFILE: usize = 16_777_215;
const MAX_TAG_KEY: usize = 255;
const MAX_TAG_VALUE: usize = 500;
const MOST_DATASETS: usize = 1000;
const MOST_EXPERIMENTS: usize = 20;

pub(crate) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    Api::new(tracking, places)
        .post("/api/2.0/mlflow/runs/log-inputs", &RUN_WRITE, "Note what went into a run", inputs)
        .post("/api/2.0/mlflow/runs/outputs", &RUN_WRITE, "Note what came out of a run", outputs)
        .post(
            "/api/2.0/mlflow/experiments/search-datasets",
            &RUN_READ,
            "List the datasets used in experiments",
            summaries,
        )
        .into()
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct DatasetShape {
    name: Option<String>,
    digest: Option<String>,
    #[serde(alias = "sourceType")]
    source_type: Option<String>,
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct InputShape {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<DatasetShape>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ModelShape {
    #[serde(alias = "modelId")]
    model_id: Option<String>,
    #[serde(deserialize_with = "read::int", skip_serializing_if = "Option::is_none")]
    step: Option<i64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LogInputs {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    datasets: Vec<InputShape>,
    models: Vec<ModelShape>,
}

async fn inputs(t: Arc<Tracking>, call: Call, body: LogInputs) -> Result<Nothing> {
    let run = required_text("run_id", body.run_id)?;
    if body.datasets.len() > MOST_DATASETS {
        return Err(refused(format!(
            "A batch logging request can contain at most {MOST_DATASETS} datasets. Got {} datasets.",
            body.datasets.len()
        )));
    }
    let datasets = body.datasets.into_iter().enumerate().map(|(at, input)| input.read(at));
    let models = body.models.into_iter().map(|model| required_text("model_id", model.model_id));
    let (datasets, models) = (datasets.collect::<Result<_>>()?, models.collect::<Result<_>>()?);
    t.log_inputs(&call, &run, datasets, models).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LogOutputs {
    #[serde(alias = "runId")]
    run_id: Option<String>,
    models: Option<Vec<ModelShape>>,
}

async fn outputs(t: Arc<Tracking>, call: Call, body: LogOutputs) -> Result<Nothing> {
    let run = required_text("run_id", body.run_id)?;
    let models = required("models", body.models)?.into_iter().map(|model| {
        Ok((required_text("model_id", model.model_id)?, model.step.unwrap_or_default()))
    });
    let models = models.collect::<Result<_>>()?;
    t.log_outputs(&call, &run, models).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SearchDatasets {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Summary {
    experiment_id: String,
    name: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Summaries {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dataset_summaries: Vec<Summary>,
}

/// The same question in another envelope.
pub(crate) async fn ask(t: Arc<Tracking>, call: &Call, input: &[u8]) -> Result<serde_json::Value> {
    asked(t, call, input, summaries).await
}

async fn summaries(t: Arc<Tracking>, call: Call, body: SearchDatasets) -> Result<Summaries> {
    let count = body.experiment_ids.len();
    if count == 0 {
        return Err(refused("SearchDatasets request must specify at least one experiment_id."));
    }
    if count > MOST_EXPERIMENTS {
        return Err(refused(format!(
            "SearchDatasets request cannot specify more than {MOST_EXPERIMENTS} experiment_ids. \
             Received {count} experiment_ids."
        )));
    }
    let ids = body.experiment_ids.iter().map(|id| id.parse()).collect::<Result<_>>()?;
    let found = t.dataset_summaries(&call, ids).await?;
    let dataset_summaries = found
        .into_iter()
        .map(|(id, name, digest, context)| Summary {
            experiment_id: id.to_string(),
            name,
            digest,
            context,
        })
        .collect();
    Ok(Summaries { dataset_summaries })
}

impl InputShape {
    fn read(self, at: usize) -> Result<DatasetInput> {
        let path = |field: &str| format!("datasets[{at}].{field}");
        let dataset = self.dataset.ok_or_else(|| missing(&path("dataset")))?;
        let text = |field: &str, value: Option<String>, limit: usize| {
            let field = path(&format!("dataset.{field}"));
            let value = value.filter(|value| !value.is_empty()).ok_or_else(|| missing(&field))?;
            short(&field, value, limit)
        };
        let optional = |field: &str, value: Option<String>, limit: usize| {
            value.map(|value| short(&path(&format!("dataset.{field}")), value, limit)).transpose()
        };
        let mut tags = Vec::with_capacity(self.tags.len());
        for (index, tag) in self.tags.into_iter().enumerate() {
            let (key, value) = tag.pair(&path("tags"), index)?;
            let key = short(&path("tags.key"), key, MAX_TAG_KEY)?;
            tags.push((key, short(&path("tags.value"), value, MAX_TAG_VALUE)?));
        }
        let dataset = Dataset {
            name: text("name", dataset.name, MAX_NAME)?,
            digest: text("digest", dataset.digest, MAX_DIGEST)?,
            source_type: text("source_type", dataset.source_type, MAX_NAME)?,
            source: text("source", dataset.source, MAX_SOURCE)?,
            schema: optional("schema", dataset.schema, MAX_SCHEMA)?,
            profile: optional("profile", dataset.profile, MAX_PROFILE)?,
        };
        Ok(DatasetInput { dataset, tags })
    }
}

fn short(field: &str, value: String, limit: usize) -> Result<String> {
    if value.len() <= limit || value.chars().count() <= limit {
        return Ok(value);
    }
    Err(too_long(field.rsplit('.').next().unwrap_or(field), limit))
}

impl From<DatasetInput> for InputShape {
    fn from(input: DatasetInput) -> Self {
        let Dataset { name, digest, source_type, source, schema, profile } = input.dataset;
        Self {
            tags: input.tags.into_iter().map(KeyValue::from).collect(),
            dataset: Some(DatasetShape {
                name: Some(name),
                digest: Some(digest),
                source_type: Some(source_type),
                source: Some(source),
                schema,
                profile,
            }),
        }
    }
}

/// What a reply says went into a run.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct InputsShape {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dataset_inputs: Vec<InputShape>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_inputs: Vec<ModelShape>,
}

/// What a reply says came out of a run.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct OutputsShape {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_outputs: Vec<ModelShape>,
}

pub(crate) fn shapes(lineage: Lineage) -> (InputsShape, OutputsShape) {
    let model = |model_id: String, step| ModelShape { model_id: Some(model_id), step };
    let inputs = InputsShape {
        dataset_inputs: lineage.datasets.into_iter().map(InputShape::from).collect(),
        model_inputs: lineage.models_in.into_iter().map(|id| model(id, None)).collect(),
    };
    let outputs = lineage.models_out.into_iter().map(|(id, step)| model(id, Some(step)));
    (inputs, OutputsShape { model_outputs: outputs.collect() })
}
