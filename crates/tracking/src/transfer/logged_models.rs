//! Logged models on their way in, with the runs that used or made them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};

use super::origin::{self, Fate, Kind, Likeness};
use super::wire::{Imported, LeftAlone, LoggedModelIn, LoggedModels, ModelMetricIn};
use super::{
    Mover, Told, Way, check_count, check_location, check_pairs, check_text, hold_open, identical,
    not_from,
};
use crate::Tracking;
use crate::artifact::{location_below, proxied_path};
use crate::dataset::store as lineage;
use crate::experiment::{Experiment, ExperimentId, Stage};
use crate::logged_model::{LoggedModel, ModelId, ModelMetric, ModelStatus, store};
use crate::purge::refuse_while_purged;
use crate::run::{RunId, require_active_run};

/// A model that was checked, and the runs it belongs to.
pub(super) struct ReadyModel {
    pub(super) model: LoggedModel,
    pub(super) inputs: Vec<RunId>,
    pub(super) outputs: Vec<(RunId, i64)>,
}

impl ReadyModel {
    /// Every run that it names.
    fn runs(&self) -> BTreeSet<RunId> {
        let outputs = self.outputs.iter().map(|(run, _)| *run);
        let metrics = self.model.metrics.iter().map(|metric| metric.run);
        self.inputs.iter().copied().chain(outputs).chain(metrics).collect()
    }
}

impl Tracking {
    pub(super) async fn import_logged_models(
        &self,
        call: &Call,
        way: Way,
        batch: LoggedModels,
    ) -> Result<Imported> {
        let mover = Mover::new(call, way, batch.source)?;
        let most = self.config().max_import_batch;
        check_count("logged_models", batch.logged_models.len(), most)?;
        self.may_bring(&mover).await?;
        let mut experiments: HashMap<ExperimentId, Experiment> = HashMap::new();
        let mut ready = Vec::with_capacity(batch.logged_models.len());
        for model in batch.logged_models {
            check(&model, most)?;
            let id: ExperimentId = model.experiment.parse()?;
            if let Entry::Vacant(unknown) = experiments.entry(id) {
                unknown.insert(self.receiving(&mover, id).await?);
            }
            if let Some(home) = experiments.get(&id) {
                ready.push(self.prepared(&mover, model, home).await?);
            }
        }
        let now = self.now_ms();
        let write = move |tx: &mut Tx<'_>| {
            let stage = |one: &ReadyModel| match mover.way {
                Way::Import => one.model.stage,
                Way::Sync => Stage::Active,
            };
            let into = ready.iter().map(|one| (one.model.experiment_id, stage(one)));
            hold_open(tx, mover.project(), into)?;
            tx.lock(&format!("import/{}", mover.project()))?;
            let (mut ids, mut left_out) = (Vec::with_capacity(ready.len()), Vec::new());
            for mut one in ready {
                // Without a time it would be purged at once.
                if one.model.stage == Stage::Deleted && one.model.updated_at <= 0 {
                    one.model.updated_at = now;
                }
                let id = one.model.id.to_string();
                match upsert(tx, &mover, &mut one)? {
                    Fate::Written => ids.push(id),
                    Fate::Same => {}
                    Fate::Left(stage) => left_out.push(LeftAlone { id, stage }),
                }
            }
            mover.record(tx, Told::LoggedModels, &ids, &[])?;
            Ok(Imported { count: ids.len(), left_out })
        };
        self.db().write(write).await
    }

    /// Every run that is named must be here and one that the caller may import into.
    async fn prepared(
        &self,
        mover: &Mover,
        from: LoggedModelIn,
        home: &Experiment,
    ) -> Result<ReadyModel> {
        let id = ModelId::parse(&from.id).ok_or_else(|| {
            Error::invalid("id", &from.id, "`m-` and 32 hex digits, as MLflow makes them")
        })?;
        let mut inputs = Vec::with_capacity(from.inputs.len());
        for run in &from.inputs {
            inputs.push(self.receiving_run(mover, run).await?.run);
        }
        let mut outputs = Vec::with_capacity(from.outputs.len());
        for (run, step) in &from.outputs {
            outputs.push((self.receiving_run(mover, run).await?.run, *step));
        }
        let mut metrics = Vec::with_capacity(from.metrics.len());
        for metric in from.metrics {
            let run = self.receiving_run(mover, &metric.run).await?.run;
            metrics.push(described(metric, run)?);
        }
        let here =
            || location_below(&home.artifact_location, format_args!("models/{id}/artifacts"));
        let model = LoggedModel {
            id,
            experiment: home.no,
            experiment_id: home.id,
            name: from.name,
            model_type: from.model_type,
            source_run: from.source_run,
            status: ModelStatus::parse(&from.status.into())?,
            stage: Stage::from(from.stage),
            created_at: from.created_at,
            updated_at: from.updated_at,
            artifact_uri: from.artifact_uri.unwrap_or_else(here),
            params: from.params,
            tags: from.tags,
            metrics,
        };
        Ok(ReadyModel { model, inputs, outputs })
    }
}

fn check(model: &LoggedModelIn, most: usize) -> Result<()> {
    check_text("name", &model.name, 500)?;
    check_text("model_type", &model.model_type, 5000)?;
    check_text("source_run", model.source_run.as_deref().unwrap_or(""), 256)?;
    check_location(model.artifact_uri.as_deref())?;
    check_pairs("params", &model.params, most)?;
    check_pairs("tags", &model.tags, most)?;
    check_count("metrics", model.metrics.len(), most)?;
    check_count("inputs", model.inputs.len(), most)?;
    check_count("outputs", model.outputs.len(), most)?;
    for metric in &model.metrics {
        check_text("metrics.key", &metric.key, 500)?;
        for text in [&metric.dataset_name, &metric.dataset_digest].into_iter().flatten() {
            check_text("metrics.dataset", text, 500)?;
        }
    }
    Ok(())
}

fn described(metric: ModelMetricIn, run: RunId) -> Result<ModelMetric> {
    let value: f64 = metric
        .value
        .parse()
        .map_err(|_| Error::invalid("metrics.value", &metric.value, "a number as text"))?;
    Ok(ModelMetric {
        key: metric.key,
        value: falaj_base::digest::plain_value(value),
        timestamp: metric.timestamp,
        step: metric.step,
        run,
        dataset_name: metric.dataset_name,
        dataset_digest: metric.dataset_digest,
    })
}

/// Writes a model: likewise.
fn upsert(tx: &mut Tx<'_>, mover: &Mover, ready: &mut ReadyModel) -> Result<Fate> {
    let id = ready.model.id.0;
    let of = (Kind::Model, &id.as_bytes()[..]);
    let there = store::find(tx, ready.model.id)?;
    let here = there.as_ref().is_some_and(|there| there.experiment == ready.model.experiment);
    // One that is elsewhere is refused where it would be written.
    if here || there.is_none() {
        let likeness = Likeness {
            same: &|tx| identical::is_model(tx, ready),
            earlier: &|tx| identical::is_earlier_model(tx, ready),
        };
        let stage = there.as_ref().map(|there| there.stage);
        let what = format!("the logged model {}", ready.model.id);
        let refusal = || not_from(mover, "logged_models.id", &what);
        if let Some(fate) = origin::admit(tx, mover, of, stage, &likeness, refusal)? {
            return Ok(fate);
        }
    }
    for run in ready.runs() {
        origin::check_run(tx, mover, "logged_models.runs", run)?;
        // As where it is logged: what is in the bin takes nothing, also not by a sync.
        if mover.way == Way::Sync {
            require_active_run(tx, run)?;
        }
    }
    if let Some(there) = there.filter(|_| here) {
        // What was deleted here stays so, and files that are here are not pointed away from.
        if mover.way == Way::Sync {
            ready.model.stage = there.stage;
        }
        if proxied_path(&there.artifact_uri).is_some() {
            ready.model.artifact_uri = there.artifact_uri;
        }
    }
    let ReadyModel { model, inputs, outputs } = ready;
    refuse_while_purged(tx, model.id.0.as_bytes(), &format!("model {}", model.id))?;
    match store::address(tx, model.id)? {
        None => store::insert(tx, model)?,
        Some((_, experiment, _)) if experiment == model.experiment => {
            tx.execute(
                "UPDATE logged_model SET name = $2, model_type = $3, source_run = $4, status = $5,
                     stage = $6, created_at = $7, updated_at = $8, artifact_uri = $9 WHERE id = $1",
                &params![
                    model.id,
                    &model.name,
                    &model.model_type,
                    model.source_run.clone(),
                    model.status,
                    model.stage,
                    model.created_at,
                    model.updated_at,
                    &model.artifact_uri,
                ],
            )?;
            for (key, value) in &model.params {
                store::add_param(tx, model.id, key, value)?;
            }
            for (key, value) in &model.tags {
                store::set_tag(tx, model.id, key, value)?;
            }
        }
        Some(_) => {
            let text = format!("the logged model id {} is taken", model.id);
            return Err(Error::new(&code::ALREADY_EXISTS, text).at("logged_models.id"));
        }
    }
    for metric in &model.metrics {
        store::add_metric(tx, model.id, metric)?;
    }
    for run in inputs.iter() {
        lineage::add_model_in(tx, *run, model.id)?;
    }
    for (run, step) in outputs.iter() {
        lineage::add_model_out(tx, *run, model.id, *step)?;
    }
    Ok(Fate::Written)
}
