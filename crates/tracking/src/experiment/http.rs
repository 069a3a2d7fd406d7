//! Experiments over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::required_text;
use falaj_mlflow::{Api, Call, Places, asked};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::experiment::{Experiment, ExperimentId};
use super::service::NewExperiment;
use crate::run::wire::KeyValue;
use crate::{EXPERIMENT_CREATE, EXPERIMENT_DELETE, EXPERIMENT_READ, EXPERIMENT_UPDATE, Tracking};

pub(crate) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    Api::new(tracking, places)
        .post(
            "/api/2.0/mlflow/experiments/create",
            &EXPERIMENT_CREATE,
            "Create an experiment",
            create,
        )
        .get("/api/2.0/mlflow/experiments/get", &EXPERIMENT_READ, "See an experiment", get)
        .get(
            "/api/2.0/mlflow/experiments/get-by-name",
            &EXPERIMENT_READ,
            "Find an experiment by its name",
            get_by_name,
        )
        .post(
            "/api/2.0/mlflow/experiments/delete",
            &EXPERIMENT_DELETE,
            "Delete an experiment",
            delete,
        )
        .post(
            "/api/2.0/mlflow/experiments/restore",
            &EXPERIMENT_UPDATE,
            "Restore a deleted experiment",
            restore,
        )
        .post(
            "/api/2.0/mlflow/experiments/update",
            &EXPERIMENT_UPDATE,
            "Rename an experiment",
            update,
        )
        .post(
            "/api/2.0/mlflow/experiments/set-experiment-tag",
            &EXPERIMENT_UPDATE,
            "Set a tag of an experiment",
            set_tag,
        )
        .post(
            "/api/2.0/mlflow/experiments/delete-experiment-tag",
            &EXPERIMENT_UPDATE,
            "Delete a tag of an experiment",
            delete_tag,
        )
        .into()
}

/// An empty reply: `{}`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Nothing {}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    name: Option<String>,
    #[serde(alias = "artifactLocation")]
    artifact_location: Option<String>,
    tags: Vec<KeyValue>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Created {
    experiment_id: String,
}

async fn create(t: Arc<Tracking>, call: Call, body: Create) -> Result<Created> {
    let tags = body.tags.into_iter().enumerate().map(|(at, tag)| tag.pair("tags", at));
    let new = NewExperiment {
        name: required_text("name", body.name)?,
        artifact_location: body.artifact_location,
        tags: tags.collect::<Result<_>>()?,
    };
    let id = t.create_experiment(&call, new).await?;
    Ok(Created { experiment_id: id.to_string() })
}

/// One experiment by its id.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ById {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
}

impl ById {
    fn id(self) -> Result<ExperimentId> {
        required_text("experiment_id", self.experiment_id)?.parse()
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ByName {
    #[serde(alias = "experimentName")]
    experiment_name: Option<String>,
}

/// An experiment as clients read it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExperimentInfo {
    experiment_id: String,
    name: String,
    artifact_location: String,
    lifecycle_stage: &'static str,
    last_update_time: i64,
    creation_time: i64,
    /// MLflow's own partition of a server; here projects are apart instead.
    workspace: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValue>,
}

impl From<Experiment> for ExperimentInfo {
    fn from(experiment: Experiment) -> Self {
        Self {
            experiment_id: experiment.id.to_string(),
            name: experiment.name,
            artifact_location: experiment.artifact_location,
            lifecycle_stage: experiment.stage.as_str(),
            last_update_time: experiment.updated_at,
            creation_time: experiment.created_at,
            workspace: "default",
            tags: experiment.tags.into_iter().map(KeyValue::from).collect(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    experiment: ExperimentInfo,
}

/// The same question in another envelope.
pub(crate) async fn ask(t: Arc<Tracking>, call: &Call, input: &[u8]) -> Result<serde_json::Value> {
    asked(t, call, input, get).await
}

async fn get(t: Arc<Tracking>, call: Call, query: ById) -> Result<Shown> {
    let experiment = t.experiment(&call, query.id()?, &EXPERIMENT_READ).await?;
    Ok(Shown { experiment: experiment.into() })
}

async fn get_by_name(t: Arc<Tracking>, call: Call, query: ByName) -> Result<Shown> {
    let name = required_text("experiment_name", query.experiment_name)?;
    Ok(Shown { experiment: t.experiment_by_name(&call, name).await?.into() })
}

async fn delete(t: Arc<Tracking>, call: Call, body: ById) -> Result<Nothing> {
    t.delete_experiment(&call, body.id()?).await.map(|()| Nothing {})
}

async fn restore(t: Arc<Tracking>, call: Call, body: ById) -> Result<Nothing> {
    t.restore_experiment(&call, body.id()?).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Update {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    #[serde(alias = "newName")]
    new_name: Option<String>,
}

async fn update(t: Arc<Tracking>, call: Call, body: Update) -> Result<Nothing> {
    let id = required_text("experiment_id", body.experiment_id)?.parse()?;
    let name = required_text("new_name", body.new_name)?;
    t.rename_experiment(&call, id, Some(name)).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tag {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    key: Option<String>,
    value: Option<String>,
}

async fn set_tag(t: Arc<Tracking>, call: Call, body: Tag) -> Result<Nothing> {
    let id = required_text("experiment_id", body.experiment_id)?.parse()?;
    let key = required_text("key", body.key)?;
    t.set_experiment_tag(&call, id, key, body.value.unwrap_or_default()).await.map(|()| Nothing {})
}

async fn delete_tag(t: Arc<Tracking>, call: Call, body: Tag) -> Result<Nothing> {
    let id = required_text("experiment_id", body.experiment_id)?.parse()?;
    let key = required_text("key", body.key)?;
    t.delete_experiment_tag(&call, id, key).await.map(|()| Nothing {})
}
