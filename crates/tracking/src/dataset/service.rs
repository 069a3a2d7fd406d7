//! The verbs on lineage.

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_store::record::Change;
use serde_json::json;

use super::{DatasetInput, store};
use crate::access::resource;
use crate::experiment::{ExperimentId, store as experiments};
use crate::logged_model::ModelId;
use crate::run::require_active_run;
use crate::{RUN_READ, RUN_WRITE, Tracking};

/// How many datasets a summary lists.
const SUMMARIES: usize = 1000;

impl Tracking {
    /// Notes what went into a run.
    pub async fn log_inputs(
        &self,
        call: &Call,
        run: &str,
        datasets: Vec<DatasetInput>,
        model_ids: Vec<String>,
    ) -> Result<()> {
        let home = self.home(call, run, &RUN_WRITE).await?;
        let model_ids = self.models_here(call, &model_ids).await?;
        let ctx = call.ctx.clone();
        self.db()
            .write(move |tx| {
                require_active_run(tx, home.run)?;
                for dataset in &datasets {
                    store::add_input(tx, home.experiment, home.run, dataset)?;
                }
                for model in &model_ids {
                    store::add_model_in(tx, home.run, *model)?;
                }
                let named: Vec<_> = datasets
                    .iter()
                    .map(
                        |input| json!({"name": input.dataset.name, "digest": input.dataset.digest}),
                    )
                    .collect();
                let data = json!({ "run_id": home.run.to_string(), "datasets": named });
                let change = Change::new(&RUN_WRITE, &home.resource)
                    .event("run.inputs", &data)
                    .after(&data)
                    .detail("run", home.run)
                    .detail("datasets", datasets.len());
                tx.record(&ctx, change)
            })
            .await
    }

    /// Notes which logged models came out of a run, and at which step.
    pub async fn log_outputs(
        &self,
        call: &Call,
        run: &str,
        outputs: Vec<(String, i64)>,
    ) -> Result<()> {
        let home = self.home(call, run, &RUN_WRITE).await?;
        let names: Vec<String> = outputs.iter().map(|(model, _)| model.clone()).collect();
        let model_ids = self.models_here(call, &names).await?;
        let steps: Vec<i64> = outputs.into_iter().map(|(_, step)| step).collect();
        let ctx = call.ctx.clone();
        self.db()
            .write(move |tx| {
                require_active_run(tx, home.run)?;
                for (model, step) in model_ids.iter().zip(&steps) {
                    store::add_model_out(tx, home.run, *model, *step)?;
                }
                let shown: Vec<String> = model_ids.iter().map(ToString::to_string).collect();
                let data = json!({ "run_id": home.run.to_string(), "models": shown });
                let change = Change::new(&RUN_WRITE, &home.resource)
                    .event("run.outputs", &data)
                    .after(&data)
                    .detail("run", home.run);
                tx.record(&ctx, change)
            })
            .await
    }

    /// Each model named must be one of this project's, and readable.
    async fn models_here(&self, call: &Call, names: &[String]) -> Result<Vec<ModelId>> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            found.push(self.logged_model_home(call, name, &RUN_READ).await?.model);
        }
        Ok(found)
    }

    /// The datasets used in some experiments.
    pub async fn dataset_summaries(
        &self,
        call: &Call,
        ids: Vec<ExperimentId>,
    ) -> Result<Vec<(ExperimentId, String, String, Option<String>)>> {
        let project = call.place.id;
        call.ctx.filtered(&RUN_READ);
        let readable =
            |id: &ExperimentId| call.ctx.allows(&RUN_READ, &resource(&call.place, *id, false));
        let ids: Vec<ExperimentId> = ids.into_iter().filter(readable).collect();
        self.db()
            .read(move |tx| {
                let mut all = Vec::new();
                for id in ids {
                    let Some(number) = experiments::number(tx, project, id)? else { continue };
                    for (name, digest, context) in store::summaries(tx, number, SUMMARIES)? {
                        all.push((id, name, digest, context));
                    }
                }
                Ok(all)
            })
            .await
    }
}
