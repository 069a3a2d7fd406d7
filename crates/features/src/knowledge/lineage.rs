//! What a view is made of, and what is made of it.

use std::collections::BTreeSet;

use falaj_base::{Ctx, Result};
use falaj_catalog::{DATASET_READ, register::Registered};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;

use crate::definition::form::{Form, Noun, Origin, SourceForm, ViewForm};
use crate::name::FeatureName;
use crate::training::{self, TrainingSetId};
use crate::{FEATURE_READ, Features, TRAINING_SET_READ};

/// MLflow keeps so many characters of a dataset's digest.
const KEPT: usize = 36;
/// Training sets that are looked at, the newest first.
const SETS: usize = 200;

/// A run that logged a dataset, and the models that came out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoggedRun {
    pub run_id: String,
    pub experiment_id: String,
    /// The digest that it logged.
    pub digest: String,
    /// Ids of logged models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Versions of registered models that came of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<ModelVersion>,
}

/// A version of a registered model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelVersion {
    pub name: String,
    pub version: String,
}

/// Finds runs by what they logged as their inputs. What keeps runs stands beside this crate.
pub trait RunsOfDatasets: Send + Sync {
    /// Those that the caller may read.
    fn runs<'a>(
        &'a self,
        ctx: &'a Ctx,
        project: &'a Project,
        digests: Vec<String>,
    ) -> BoxFuture<'a, Result<Vec<LoggedRun>>>;
}

/// What a view is made of, and what is made of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ViewLineage {
    pub view: FeatureName,
    pub version: i64,
    pub up: Up,
    pub down: Down,
}

/// What a view is made of.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Up {
    pub entities: Vec<FeatureName>,
    /// Its source, and the one with the rows from before.
    pub sources: Vec<SourceNode>,
    /// Of a view on demand: the views that it is computed from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<FeatureName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SourceNode {
    pub name: FeatureName,
    /// What it is, as its definition says.
    #[schemars(with = "serde_json::Value")]
    pub origin: Origin,
}

/// What is made of a view.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Down {
    /// Services whose latest version has it.
    pub services: Vec<FeatureName>,
    /// Views on demand whose latest version is computed from it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<FeatureName>,
    /// Training sets, the newest first.
    pub training_sets: Vec<SetNode>,
    /// Datasets that those sets were registered as.
    pub datasets: Vec<Registered>,
    /// Runs that logged such a set, or such a dataset, by its digest.
    pub runs: Vec<LoggedRun>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct SetNode {
    pub id: TrainingSetId,
    /// The version of the view that it is made of.
    pub view_version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl Features {
    /// What a view is made of and what is made of it, as far as the caller may know.
    pub async fn view_lineage(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
    ) -> Result<ViewLineage> {
        let view = self.readable_view(ctx, project, name).await?;
        let catalog = self.catalog(project.id).await?;
        let seen = |noun, name: &FeatureName| {
            let known = catalog.get(noun, name);
            known.is_some_and(|it| ctx.allows(&FEATURE_READ, &it.resource(project)))
        };
        let mut up = Up::default();
        let entities = view.form().entities.iter().map(|entity| entity.name.clone());
        up.entities = entities.filter(|name| seen(Noun::Entity, name)).collect();
        let mut source: Option<&SourceForm> = Some(&view.form().source);
        while let Some(one) = source {
            if seen(Noun::Source, &one.name) {
                up.sources.push(SourceNode { name: one.name.clone(), origin: one.origin.clone() });
            }
            source = one.origin.batch();
        }
        up.views = inputs_of(view.form());
        up.views.retain(|name| seen(Noun::View, name));
        let mut down = Down::default();
        for one in catalog.all().filter(|it| ctx.allows(&FEATURE_READ, &it.resource(project))) {
            match &one.definition {
                Form::Service(form) if form.picks.iter().any(|pick| pick.view == *name) => {
                    down.services.push(one.name.clone());
                }
                Form::View(form) if inputs_of(form).contains(name) => {
                    down.views.push(one.name.clone());
                }
                _ => {}
            }
        }
        if ctx.allows(&TRAINING_SET_READ, &project.resource()) {
            let (id, wanted) = (project.id, name.clone());
            let read = move |tx: &mut Tx<'_>| training::store::of_view(tx, id, &wanted, SETS);
            for (set, view_version, digest) in self.db().read(read).await? {
                // A set has other views beside this one: whoever may not know of one does not see it.
                if self.may_see_set(ctx, project, set).await? {
                    down.training_sets.push(SetNode { id: set, view_version, digest });
                }
            }
        }
        let ids: Vec<String> = down.training_sets.iter().map(|set| set.id.to_string()).collect();
        if let Some(datasets) = self.datasets_if_any() {
            let found = datasets.registered(project, "training-set", &ids).await?;
            down.datasets = found
                .into_iter()
                .filter(|it| ctx.allows(&DATASET_READ, &it.resource(project)))
                .collect();
        }
        if let Some(runs) = self.runs_of_datasets() {
            let sets = down.training_sets.iter().filter_map(|set| set.digest.clone());
            let datasets = down.datasets.iter().map(|it| it.digest.clone());
            let mut digests = BTreeSet::new();
            for digest in sets.chain(datasets) {
                digests.insert(digest.chars().take(KEPT).collect::<String>());
                digests.insert(digest);
            }
            if !digests.is_empty() {
                down.runs = runs.runs(ctx, project, digests.into_iter().collect()).await?;
            }
        }
        Ok(ViewLineage { view: name.clone(), version: view.version(), up, down })
    }
}

/// The views that one on demand is computed from, each once.
fn inputs_of(view: &ViewForm) -> Vec<FeatureName> {
    let inputs = view.inputs().iter().filter_map(|input| input.feature.as_ref());
    let names: BTreeSet<FeatureName> = inputs.map(|feature| feature.view.clone()).collect();
    names.into_iter().collect()
}
