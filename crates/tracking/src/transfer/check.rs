//! What is here of some runs and logged models, in counts and digests: enough to tell whether it
//! is what another store holds, without sending it.

use std::collections::HashMap;

use falaj_base::{Result, SetDigest, digest};
use falaj_mlflow::Call;
use falaj_store::db::Tx;

use super::check_count;
use super::wire::{Asked, Here, ModelHere, RunHere};
use crate::access::resource;
use crate::dataset::{DatasetInput, store as lineage};
use crate::logged_model::{LoggedModel, ModelId, store as models};
use crate::run::load::load;
use crate::run::{Run, RunId, store as runs};
use crate::{IMPORT_CHECK, Tracking, key, metric};

impl Tracking {
    /// What is not here, or not for the caller, is left out.
    pub(super) async fn check_import(&self, call: &Call, asked: Asked) -> Result<Here> {
        let most = self.config().max_import_batch;
        check_count("runs", asked.runs.len(), most)?;
        check_count("logged_models", asked.logged_models.len(), most)?;
        let mut ids = Vec::with_capacity(asked.runs.len());
        for run in &asked.runs {
            ids.extend(RunId::parse(run)?);
        }
        let model_ids: Vec<ModelId> =
            asked.logged_models.iter().filter_map(|id| ModelId::parse(id)).collect();
        call.ctx.filtered(&IMPORT_CHECK);
        let call = call.clone();
        let read = move |tx: &mut Tx<'_>| {
            let mut here = Here { runs: Vec::new(), logged_models: Vec::new() };
            let mut visible = HashMap::new();
            let mut may_see = |project, id| {
                project == call.place.id
                    && *visible.entry(id).or_insert_with(|| {
                        call.ctx.allows(&IMPORT_CHECK, &resource(&call.place, id, false))
                    })
            };
            let mut seen = Vec::with_capacity(ids.len());
            for id in ids {
                let address = runs::address(tx, id)?;
                if address.is_some_and(|found| may_see(found.project, found.experiment_id)) {
                    seen.push(id);
                }
            }
            for run in load(tx, &seen)? {
                here.runs.push(run_here(tx, &run)?);
            }
            for id in model_ids {
                let address = models::address(tx, id)?;
                if !address.is_some_and(|(project, _, id)| may_see(project, id)) {
                    continue;
                }
                if let Some(model) = models::find(tx, id)? {
                    here.logged_models.push(model_here(tx, &model)?);
                }
            }
            Ok(here)
        };
        self.db().read(read).await
    }
}

fn run_here(tx: &mut Tx<'_>, run: &Run) -> Result<RunHere> {
    let keys = run_keys(tx, run.info.id)?;
    let names = key::names(tx, keys.iter().copied())?;
    let mut points = SetDigest::default();
    metric::store::each_history(tx, run.info.id, &keys, |key, history| {
        let series = names.get(&key).map_or(0, |name| digest::text(name));
        for point in history {
            points.add_point(series, point.timestamp(), point.step(), point.value());
        }
    })?;
    let mut datasets = SetDigest::default();
    for input in &run.lineage.datasets {
        datasets.merge(input_digest(input));
    }
    Ok(RunHere {
        id: run.info.id.to_string(),
        experiment: run.info.experiment_id.to_string(),
        status: run.info.status.as_str(),
        stage: run.info.stage.as_str(),
        params: pairs(&run.data.params),
        tags: pairs(&run.data.tags),
        points: points.to_string(),
        datasets: datasets.to_string(),
    })
}

/// The numbers of the metrics that a run has.
fn run_keys(tx: &mut Tx<'_>, run: RunId) -> Result<Vec<i64>> {
    Ok(metric::latest::latest(tx, &[run])?.into_iter().map(|(_, key, _)| key).collect())
}

fn pairs(pairs: &[(String, String)]) -> String {
    SetDigest::of_pairs(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))).to_string()
}

/// A dataset counts with each of its tags, so that a lost tag is a difference.
fn input_digest(input: &DatasetInput) -> SetDigest {
    let of = digest::text(&format!("{}\n{}", input.dataset.name, input.dataset.digest));
    let mut digest = SetDigest::default();
    digest.add([of, digest::text(&input.dataset.source)]);
    for (key, value) in &input.tags {
        digest.add([of, digest::text(key), digest::text(value)]);
    }
    digest
}

fn model_here(tx: &mut Tx<'_>, model: &LoggedModel) -> Result<ModelHere> {
    let mut metrics = SetDigest::default();
    for metric in &model.metrics {
        let series = digest::text(&format!(
            "{}\n{}\n{}\n{}",
            metric.key,
            metric.run,
            metric.dataset_name.as_deref().unwrap_or(""),
            metric.dataset_digest.as_deref().unwrap_or("")
        ));
        metrics.add_point(series, metric.timestamp, metric.step, metric.value);
    }
    let mut links = SetDigest::default();
    for (run, step) in lineage::runs_of_model(tx, model.id)? {
        links
            .add([digest::text(&run.to_string()), step.map_or(0, |step| step.cast_unsigned() ^ 1)]);
    }
    Ok(ModelHere {
        id: model.id.to_string(),
        experiment: model.experiment_id.to_string(),
        stage: model.stage.as_str(),
        params: pairs(&model.params),
        tags: pairs(&model.tags),
        metrics: metrics.to_string(),
        links: links.to_string(),
    })
}
