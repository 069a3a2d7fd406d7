//! Runs by what they logged as their inputs, and the registered versions that came of them, for the
//! lineage of features: domains that do not know of each other meet here.

use std::collections::{BTreeSet, HashMap};

use falaj_base::{Ctx, Result};
use falaj_features::knowledge::{LoggedRun, ModelVersion, RunsOfDatasets};
use falaj_governance::tenancy::Project;
use falaj_registry::Registry;
use falaj_registry::version::VersionSearch;
use falaj_tracking::Tracking;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Runs that one search asks about, and versions that it shows at most.
const AT_ONCE: usize = 100;
const MOST: usize = 1000;

pub(crate) struct DatasetRuns(pub(crate) Tracking, pub(crate) Registry);

impl DatasetRuns {
    /// The versions of registered models that came of some runs, by run, as far as the caller may know.
    async fn versions(
        &self,
        ctx: &Ctx,
        project: &Project,
        runs: &[String],
    ) -> Result<HashMap<String, Vec<ModelVersion>>> {
        let mut found: HashMap<String, Vec<ModelVersion>> = HashMap::new();
        for some in runs.chunks(AT_ONCE) {
            let list: Vec<_> = some.iter().map(|run| format!("'{run}'")).collect();
            let search = VersionSearch {
                filter: Some(format!("run_id IN ({})", list.join(", "))),
                limit: MOST,
                ..VersionSearch::default()
            };
            let (versions, _) = self.1.search_versions(ctx, project, search).await?;
            for version in versions {
                let Some(run) = version.run_id else { continue };
                let version =
                    ModelVersion { name: version.name, version: version.number.to_string() };
                found.entry(run).or_default().push(version);
            }
        }
        Ok(found)
    }
}

impl RunsOfDatasets for DatasetRuns {
    fn runs<'a>(
        &'a self,
        ctx: &'a Ctx,
        project: &'a Project,
        digests: Vec<String>,
    ) -> BoxFuture<'a, Result<Vec<LoggedRun>>> {
        async move {
            let found = self.0.runs_of_datasets(ctx, project, digests).await?;
            let runs: BTreeSet<String> = found.iter().map(|used| used.run.clone()).collect();
            let runs: Vec<String> = runs.into_iter().collect();
            let versions = self.versions(ctx, project, &runs).await?;
            let shown = found.into_iter().map(|used| LoggedRun {
                versions: versions.get(&used.run).cloned().unwrap_or_default(),
                run_id: used.run,
                experiment_id: used.experiment,
                digest: used.digest,
                models: used.models,
            });
            Ok(shown.collect())
        }
        .boxed()
    }
}
