//! What is here of some runs and logged models, in counts and digests: enough to tell whether it
//! is what another store holds, without sending it.

use std::collections::BTreeMap;

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

/// What a point counts for where bytes are bounded, and everything that is looked at.
const POINT: usize = 24;
const THING: usize = 1000;
/// What the digest of one metric takes in an answer.
const DIGEST: usize = 64;

impl Tracking {
    /// What is not here, or not for the caller, is left out. Each is read by itself, and no more in
    /// all than is allowed: the rest is named for another request.
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
        let mut room =
            usize::try_from(self.config().max_import_check.bytes()).unwrap_or(usize::MAX);
        let mut here = Here { runs: Vec::new(), logged_models: Vec::new(), left: Asked::default() };
        here.left.series = asked.series;
        for id in ids {
            if room == 0 {
                here.left.runs.push(id.to_string());
                continue;
            }
            let (call, series) = (call.clone(), asked.series);
            let read = move |tx: &mut Tx<'_>| {
                let address = runs::address(tx, id)?;
                let visible =
                    address.is_some_and(|home| may_see(&call, home.project, home.experiment_id));
                let run = if visible { load(tx, &[id])?.pop() } else { None };
                run.map(|run| run_here(tx, &run, series)).transpose()
            };
            let found = self.db().read(read).await?;
            room = room.saturating_sub(THING + found.as_ref().map_or(0, |(_, bytes)| *bytes));
            here.runs.extend(found.map(|(run, _)| run));
        }
        for id in model_ids {
            if room == 0 {
                here.left.logged_models.push(id.to_string());
                continue;
            }
            let call = call.clone();
            let read = move |tx: &mut Tx<'_>| {
                let address = models::address(tx, id)?;
                let visible =
                    address.is_some_and(|(project, _, home)| may_see(&call, project, home));
                let model = if visible { models::find(tx, id)? } else { None };
                model.map(|model| model_here(tx, &model)).transpose()
            };
            let found = self.db().read(read).await?;
            room = room.saturating_sub(THING + found.as_ref().map_or(0, |(_, bytes)| *bytes));
            here.logged_models.extend(found.map(|(model, _)| model));
        }
        Ok(here)
    }
}

fn may_see(
    call: &Call,
    project: falaj_base::ProjectId,
    experiment: crate::experiment::ExperimentId,
) -> bool {
    project == call.place.id
        && call.ctx.allows(&IMPORT_CHECK, &resource(&call.place, experiment, false))
}

/// What is here of a run, and about how many bytes were read for it.
fn run_here(tx: &mut Tx<'_>, run: &Run, by_metric: bool) -> Result<(RunHere, usize)> {
    let keys = run_keys(tx, run.info.id)?;
    let names = key::names(tx, keys.iter().copied())?;
    let mut series: BTreeMap<&str, SetDigest> = BTreeMap::new();
    metric::store::each_history(tx, run.info.id, &keys, |key, history| {
        let Some(name) = names.get(&key) else { return };
        let number = digest::text(name);
        let points = series.entry(name).or_default();
        for point in history {
            points.add_point(number, point.timestamp(), point.step(), point.value());
        }
    })?;
    let mut points = SetDigest::default();
    for one in series.values() {
        points.merge(*one);
    }
    let mut datasets = SetDigest::default();
    let mut bytes = usize::try_from(points.count()).unwrap_or(usize::MAX).saturating_mul(POINT);
    // What is named in the answer counts as well: names are long, and there can be many.
    bytes += series.keys().map(|name| name.len() + DIGEST).sum::<usize>();
    for input in &run.lineage.datasets {
        datasets.merge(input_digest(input));
        bytes += input.dataset.name.len() + input.dataset.digest.len() + length(&input.tags);
        let texts = [input.dataset.schema.as_ref(), input.dataset.profile.as_ref()];
        bytes += input.dataset.source.len();
        bytes += texts.into_iter().flatten().map(String::len).sum::<usize>();
    }
    bytes += length(&run.data.params) + length(&run.data.tags);
    let series = series.into_iter().map(|(name, sum)| (name.to_owned(), sum.to_string()));
    let here = RunHere {
        id: run.info.id.to_string(),
        experiment: run.info.experiment_id.to_string(),
        status: run.info.status.as_str(),
        stage: run.info.stage.as_str(),
        params: pairs(&run.data.params),
        tags: pairs(&run.data.tags),
        points: points.to_string(),
        datasets: datasets.to_string(),
        series: by_metric.then(|| series.collect()),
    };
    Ok((here, bytes))
}

/// The numbers of the metrics that a run has.
fn run_keys(tx: &mut Tx<'_>, run: RunId) -> Result<Vec<i64>> {
    Ok(metric::latest::latest(tx, &[run])?.into_iter().map(|(_, key, _)| key).collect())
}

fn length(pairs: &[(String, String)]) -> usize {
    pairs.iter().map(|(key, value)| key.len() + value.len()).sum()
}

pub(super) fn pairs(pairs: &[(String, String)]) -> String {
    SetDigest::of_pairs(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))).to_string()
}

/// A dataset counts with each of its tags, so that a lost tag is a difference.
pub(super) fn input_digest(input: &DatasetInput) -> SetDigest {
    let of = digest::text(&format!("{}\n{}", input.dataset.name, input.dataset.digest));
    let mut digest = SetDigest::default();
    digest.add([of, digest::text(&input.dataset.source)]);
    for (key, value) in &input.tags {
        digest.add([of, digest::text(key), digest::text(value)]);
    }
    digest
}

fn model_here(tx: &mut Tx<'_>, model: &LoggedModel) -> Result<(ModelHere, usize)> {
    let mut links = SetDigest::default();
    for (run, step) in lineage::runs_of_model(tx, model.id)? {
        links.merge(link(run, step));
    }
    let bytes = length(&model.params)
        + length(&model.tags)
        + model.metrics.len() * 100
        + usize::try_from(links.count()).unwrap_or(usize::MAX).saturating_mul(POINT);
    let here = ModelHere {
        id: model.id.to_string(),
        experiment: model.experiment_id.to_string(),
        stage: model.stage.as_str(),
        params: pairs(&model.params),
        tags: pairs(&model.tags),
        metrics: metrics(model).to_string(),
        links: links.to_string(),
    };
    Ok((here, bytes))
}

/// The metrics that describe a logged model.
pub(super) fn metrics(model: &LoggedModel) -> SetDigest {
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
    metrics
}

/// A run that a logged model went into, or came out of at a step.
pub(super) fn link(run: RunId, step: Option<i64>) -> SetDigest {
    let mut digest = SetDigest::default();
    digest.add([digest::text(&run.to_string()), step.map_or(0, |step| step.cast_unsigned() ^ 1)]);
    digest
}
