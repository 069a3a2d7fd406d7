//! Scorers over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, refused, required_text};
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_tracking::ExperimentId;
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::scorer::{NewScorer, Version};
use crate::trace::wire::Nothing;
use crate::{EVALUATION_DELETE, EVALUATION_READ, EVALUATION_WRITE, Traces};

const REGISTER: &str = "/api/3.0/mlflow/scorers/register";
const LIST: &str = "/api/3.0/mlflow/scorers/list";
const VERSIONS: &str = "/api/3.0/mlflow/scorers/versions";
const GET: &str = "/api/3.0/mlflow/scorers/get";
const ONLINE: &str = "/api/3.0/mlflow/scorers/online-configs";
const DELETE: &str = "/api/3.0/mlflow/scorers/delete";

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    let (see, gone) = (&EVALUATION_READ, &EVALUATION_DELETE);
    Api::new(traces, places)
        .post(REGISTER, &EVALUATION_WRITE, "Register a version of a scorer", register)
        .get(LIST, see, "List scorers", list)
        .get(VERSIONS, see, "List the versions of a scorer", versions)
        .get(GET, see, "See a scorer", get)
        .get(ONLINE, see, "See which scorers run by themselves: none", online)
        .with_body(Method::DELETE, DELETE, gone, "Delete a scorer, or a version of it", delete)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Register {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    name: Option<String>,
    /// A JSON object.
    #[serde(alias = "serializedScorer")]
    serialized_scorer: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Registered {
    version: i64,
    scorer_id: String,
    experiment_id: String,
    name: String,
    serialized_scorer: String,
    creation_time: i64,
}

async fn register(t: Arc<Traces>, call: Call, body: Register) -> Result<Registered> {
    let experiment: ExperimentId = required_text("experiment_id", body.experiment_id)?.parse()?;
    let name = required_text("name", body.name)?;
    let serialized = required_text("serialized_scorer", body.serialized_scorer)?;
    let new = NewScorer::read(name, serialized, t.config())?;
    let made = t.register_scorer(&call, experiment, new).await?;
    Ok(Registered {
        version: made.number,
        scorer_id: made.scorer_id,
        experiment_id: experiment.to_string(),
        name: made.name,
        serialized_scorer: made.serialized,
        creation_time: made.created_at,
    })
}

/// Here the number of an experiment is a number.
#[derive(Debug, Serialize, JsonSchema)]
struct ScorerShape {
    experiment_id: i64,
    scorer_name: String,
    scorer_version: i64,
    serialized_scorer: String,
    creation_time: i64,
    scorer_id: String,
}

impl ScorerShape {
    fn new(experiment: ExperimentId, version: Version) -> Self {
        Self {
            experiment_id: experiment.0,
            scorer_name: version.name,
            scorer_version: version.number,
            serialized_scorer: version.serialized,
            creation_time: version.created_at,
            scorer_id: version.scorer_id,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scorers: Vec<ScorerShape>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Which {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
}

async fn list(t: Arc<Traces>, call: Call, query: Which) -> Result<Found> {
    let one = query.experiment_id.filter(|id| !id.is_empty());
    let several: Vec<ExperimentId> =
        query.experiment_ids.iter().map(|id| id.parse()).collect::<Result<_>>()?;
    let found = match (one, several.is_empty()) {
        (Some(_), false) => {
            return Err(refused("Cannot specify both 'experiment_id' and 'experiment_ids'."));
        }
        (Some(id), true) => t.scorers(&call, id.parse()?).await?,
        (None, false) => t.scorers_across(&call, Some(several)).await?,
        (None, true) => t.scorers_across(&call, None).await?,
    };
    let shown = found.into_iter().map(|(id, version)| ScorerShape::new(id, version));
    Ok(Found { scorers: shown.collect() })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Named {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    name: Option<String>,
    #[serde(deserialize_with = "read::int")]
    version: Option<i64>,
}

impl Named {
    fn read(self) -> Result<(ExperimentId, String, Option<i64>)> {
        let experiment = required_text("experiment_id", self.experiment_id)?.parse()?;
        if let Some(version) = self.version.filter(|version| *version < 1) {
            return Err(invalid("version", &json!(version), "versions are counted from 1"));
        }
        Ok((experiment, required_text("name", self.name)?, self.version))
    }
}

async fn versions(t: Arc<Traces>, call: Call, query: Named) -> Result<Found> {
    let (experiment, name, _) = query.read()?;
    let found = t.scorer_versions(&call, experiment, &name).await?;
    let shown = found.into_iter().map(|version| ScorerShape::new(experiment, version));
    Ok(Found { scorers: shown.collect() })
}

#[derive(Debug, Serialize, JsonSchema)]
struct One {
    scorer: ScorerShape,
}

async fn get(t: Arc<Traces>, call: Call, query: Named) -> Result<One> {
    let (experiment, name, version) = query.read()?;
    let found = t.scorer(&call, experiment, &name, version).await?;
    Ok(One { scorer: ScorerShape::new(experiment, found) })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Online {
    #[serde(alias = "scorerIds", deserialize_with = "read::list")]
    scorer_ids: Vec<String>,
}

/// How scorers run by themselves: none does, since nothing here runs one. Clients ask this of every
/// scorer that they list.
#[derive(Debug, Serialize, JsonSchema)]
struct OnlineConfigs {
    configs: Vec<String>,
}

async fn online(_: Arc<Traces>, call: Call, query: Online) -> Result<OnlineConfigs> {
    if query.scorer_ids.is_empty() {
        return Err(missing("scorer_ids"));
    }
    call.ctx.filtered(&EVALUATION_READ);
    Ok(OnlineConfigs { configs: Vec::new() })
}

async fn delete(t: Arc<Traces>, call: Call, body: Named) -> Result<Nothing> {
    let (experiment, name, version) = body.read()?;
    t.delete_scorer(&call, experiment, name, version).await.map(|()| Nothing {})
}
