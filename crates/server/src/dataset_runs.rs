//! Runs by what they logged as their inputs, for the lineage of features: two domains that do not
//! know of each other meet here.

use falaj_base::{Ctx, Result};
use falaj_features::knowledge::{LoggedRun, RunsOfDatasets};
use falaj_governance::tenancy::Project;
use falaj_tracking::Tracking;
use futures::FutureExt;
use futures::future::BoxFuture;

pub(crate) struct DatasetRuns(pub(crate) Tracking);

impl RunsOfDatasets for DatasetRuns {
    fn runs<'a>(
        &'a self,
        ctx: &'a Ctx,
        project: &'a Project,
        digests: Vec<String>,
    ) -> BoxFuture<'a, Result<Vec<LoggedRun>>> {
        async move {
            let found = self.0.runs_of_datasets(ctx, project, digests).await?;
            let shown = found.into_iter().map(|used| LoggedRun {
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
