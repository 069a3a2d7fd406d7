//! Following a version back.

use std::collections::BTreeMap;

use falaj_base::{Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_tracking::dataset::DatasetInput;
use falaj_tracking::run::Run;
use falaj_tracking::{RUN_READ, experiment_resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::Registry;
use crate::evidence::Evidence;
use crate::mlmodel::{InputExample, MlModel};
use crate::version::Version;

/// The longest input example that is shown, in bytes.
const MAX_EXAMPLE: u64 = 64 << 10;

/// The tag that says what a dataset was used for.
const CONTEXT: &str = "mlflow.data.context";

/// Everything that is known about where a version comes from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Lineage {
    pub name: String,
    pub version: String,
    /// Where it was registered from, as its maker wrote it.
    pub source: String,
    pub registered_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logged_model: Option<String>,
    /// The id of the run it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// That run, if it stands behind the files and the caller may read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<SourceRun>,
    /// One digest for all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What the model's own `MLmodel` file says.
    pub model: MlModel,
}

/// The run behind a version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SourceRun {
    pub run_id: String,
    pub experiment_id: String,
    pub name: String,
    pub user: String,
    pub status: &'static str,
    /// In milliseconds since 1970.
    pub start_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<i64>,
    pub params: BTreeMap<String, String>,
    pub datasets: Vec<UsedDataset>,
}

/// A dataset that went into the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UsedDataset {
    pub name: String,
    pub digest: String,
    pub source_type: String,
    pub source: String,
    /// What it was used for, such as `training`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Registry {
    pub async fn lineage(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<Lineage> {
        let version = self.version(ctx, project, name, number).await?;
        let evidence = self.evidence(project, &version).await?;
        let run = self.readable_run(ctx, project, &evidence).await?;
        let mut model = MlModel::read(evidence.declared.mlmodel.as_deref().unwrap_or(""));
        if let Some(example) = &mut model.input_example {
            example.content = self.example(project, &version, example).await?;
        }
        Ok(Lineage {
            name: version.name,
            version: version.number.to_string(),
            source: version.source,
            registered_by: version.created_by,
            logged_model: version.logged_model,
            run_id: version.run_id.filter(|run| !run.is_empty()),
            run: run.as_ref().map(SourceRun::from),
            digest: evidence.digest,
            model,
        })
    }

    /// The run that stands behind a version, for whoever may read its experiment.
    pub(crate) async fn readable_run(
        &self,
        ctx: &Ctx,
        project: &Project,
        evidence: &Evidence,
    ) -> Result<Option<Run>> {
        let Some(run) = &evidence.run else { return Ok(None) };
        let found = self.tracking().run_in(project.id, run).await?;
        Ok(found.filter(|run| {
            ctx.allows(&RUN_READ, &experiment_resource(project, run.info.experiment_id, false))
        }))
    }

    async fn example(
        &self,
        project: &Project,
        version: &Version,
        example: &InputExample,
    ) -> Result<Option<Value>> {
        let text = self.version_text(project, version, &example.path, MAX_EXAMPLE).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

impl From<&Run> for SourceRun {
    fn from(run: &Run) -> Self {
        Self {
            run_id: run.info.id.to_string(),
            experiment_id: run.info.experiment_id.to_string(),
            name: run.info.name.clone(),
            user: run.info.user_id.clone(),
            status: run.info.status.as_str(),
            start_time: run.info.start_time,
            end_time: run.info.end_time,
            params: run.data.params.iter().cloned().collect(),
            datasets: run.lineage.datasets.iter().map(UsedDataset::from).collect(),
        }
    }
}

impl From<&DatasetInput> for UsedDataset {
    fn from(input: &DatasetInput) -> Self {
        let context = input.tags.iter().find(|(key, _)| key == CONTEXT);
        Self {
            name: input.dataset.name.clone(),
            digest: input.dataset.digest.clone(),
            source_type: input.dataset.source_type.clone(),
            source: input.dataset.source.clone(),
            context: context.map(|(_, value)| value.clone()),
        }
    }
}
