//! The verbs on logged models.

use falaj_base::{Action, Error, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use falaj_mlflow::names::check_key;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::id::ModelId;
use super::model::{LoggedModel, ModelMetric, ModelStatus, check_params};
use super::store;
use crate::access::{allowed, resource};
use crate::artifact::location_below;
use crate::experiment::{ExperimentId, Stage, require_active, require_active_for};
use crate::run::{LoggedMetric, RunId, random_name};
use crate::{RUN_DELETE, RUN_READ, RUN_UNTAG, RUN_WRITE, Tracking};

/// Where a model lives, seen and allowed.
#[derive(Clone, Debug)]
pub struct ModelHome {
    pub model: ModelId,
    pub experiment: i64,
    pub experiment_id: ExperimentId,
    pub resource: Resource,
}

/// What is needed to make one.
#[derive(Clone, Debug)]
pub struct NewLoggedModel {
    pub experiment: ExperimentId,
    pub name: Option<String>,
    pub model_type: String,
    pub source_run: Option<String>,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
}

impl Tracking {
    /// The home of a model, if the caller may do `action` there. Not there and not yours read
    /// alike.
    pub async fn logged_model_home(
        &self,
        call: &Call,
        model: &str,
        action: &'static Action,
    ) -> Result<ModelHome> {
        let id = ModelId::parse(model);
        let found = match id {
            Some(id) => self.db().read(move |tx| store::address(tx, id)).await?,
            None => None,
        };
        let found = found.filter(|(project, _, _)| *project == call.place.id);
        let not_there = || no_model(model);
        let (Some(model), Some((_, experiment, experiment_id))) = (id, found) else {
            let absent = Resource::absent("logged-model", model, call.place.scope());
            allowed(&call.ctx, action, &absent, not_there).await?;
            return Err(not_there());
        };
        let resource = resource(&call.place, experiment_id, false).shown_as(model);
        allowed(&call.ctx, action, &resource, not_there).await?;
        Ok(ModelHome { model, experiment, experiment_id, resource })
    }

    pub async fn create_logged_model(
        &self,
        call: &Call,
        new: NewLoggedModel,
    ) -> Result<LoggedModel> {
        check_name(new.name.as_deref())?;
        for (key, _) in new.params.iter().chain(&new.tags) {
            check_key("key", key)?;
        }
        check_params(&[], &new.params)?;
        let experiment = self.experiment(call, new.experiment, &RUN_WRITE).await?;
        require_active(&experiment)?;
        // A text that no run here could have as its id is kept as what it is: a text.
        if let Some(run) = &new.source_run
            && matches!(RunId::parse(run), Ok(Some(_)))
        {
            self.home(call, run, &RUN_READ).await?;
        }
        let (id, now) = (ModelId::new(), self.now_ms());
        let folder = format!("models/{id}/artifacts");
        let model = LoggedModel {
            id,
            experiment: experiment.no,
            experiment_id: experiment.id,
            name: new.name.filter(|name| !name.is_empty()).unwrap_or_else(random_name),
            model_type: new.model_type,
            source_run: new.source_run,
            status: ModelStatus::Pending,
            stage: Stage::Active,
            created_at: now,
            updated_at: now,
            artifact_uri: location_below(&experiment.artifact_location, folder),
            params: new.params,
            tags: new.tags,
            metrics: Vec::new(),
        };
        let resource = resource(&call.place, experiment.id, false);
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                require_active_for(tx, project, model.experiment_id)?;
                store::insert(tx, &model)?;
                let data = shown(&model);
                let change = Change::new(&RUN_WRITE, &resource)
                    .event("logged-model.created", &data)
                    .after(&data)
                    .detail("logged_model", model.id);
                tx.record(&ctx, change)?;
                Ok(model)
            })
            .await
    }

    pub async fn logged_model(
        &self,
        call: &Call,
        model: &str,
        also_deleted: bool,
    ) -> Result<LoggedModel> {
        let home = self.logged_model_home(call, model, &RUN_READ).await?;
        let found = self.db().read(move |tx| store::find(tx, home.model)).await?;
        found
            .filter(|found| also_deleted || found.stage == Stage::Active)
            .ok_or_else(|| no_model(model))
    }

    pub async fn finalize_logged_model(
        &self,
        call: &Call,
        model: &str,
        status: ModelStatus,
    ) -> Result<LoggedModel> {
        let change = move |tx: &mut Tx<'_>, old: &LoggedModel, now| {
            store::set_status(tx, old.id, status, now)
        };
        self.change_model(call, model, &RUN_WRITE, "logged-model.finalized", change).await
    }

    pub async fn delete_logged_model(&self, call: &Call, model: &str) -> Result<()> {
        let change = |tx: &mut Tx<'_>, old: &LoggedModel, now| {
            store::set_stage(tx, old.id, Stage::Deleted, now)
        };
        self.change_model(call, model, &RUN_DELETE, "logged-model.deleted", change).await.map(drop)
    }

    pub async fn tag_logged_model(
        &self,
        call: &Call,
        model: &str,
        tags: Vec<(String, String)>,
    ) -> Result<LoggedModel> {
        for (key, _) in &tags {
            check_key("key", key)?;
        }
        let change = move |tx: &mut Tx<'_>, old: &LoggedModel, _| {
            tags.iter().try_for_each(|(key, value)| store::set_tag(tx, old.id, key, value))
        };
        self.change_model(call, model, &RUN_WRITE, "logged-model.updated", change).await
    }

    pub async fn untag_logged_model(&self, call: &Call, model: &str, key: String) -> Result<()> {
        let change = move |tx: &mut Tx<'_>, old: &LoggedModel, _| {
            if store::delete_tag(tx, old.id, &key)? {
                return Ok(());
            }
            let text = format!("No tag with key {key:?} found for model with ID {:?}.", old.id);
            Err(Error::new(&code::NOT_FOUND, text))
        };
        self.change_model(call, model, &RUN_UNTAG, "logged-model.updated", change).await.map(drop)
    }

    pub async fn log_model_params(
        &self,
        call: &Call,
        model: &str,
        params: Vec<(String, String)>,
    ) -> Result<()> {
        for (key, _) in &params {
            check_key("key", key)?;
        }
        let change = move |tx: &mut Tx<'_>, old: &LoggedModel, _| {
            check_params(&old.params, &params)?;
            params.iter().try_for_each(|(key, value)| store::add_param(tx, old.id, key, value))
        };
        self.change_model(call, model, &RUN_WRITE, "logged-model.updated", change).await.map(drop)
    }

    /// One change of one model that is not in the bin, put on record.
    async fn change_model(
        &self,
        call: &Call,
        model: &str,
        action: &'static Action,
        event: &'static str,
        change: impl Fn(&mut Tx<'_>, &LoggedModel, i64) -> Result<()> + Send + 'static,
    ) -> Result<LoggedModel> {
        let home = self.logged_model_home(call, model, action).await?;
        let (ctx, now) = (call.ctx.clone(), self.now_ms());
        self.db()
            .write(move |tx| {
                let gone = || no_model(&home.model.to_string());
                tx.lock(&format!("logged-model/{}", home.model))?;
                let old = store::find(tx, home.model)?
                    .filter(|old| old.stage == Stage::Active)
                    .ok_or_else(gone)?;
                change(tx, &old, now)?;
                let new = store::find(tx, home.model)?.ok_or_else(gone)?;
                let record = Change::new(action, &home.resource)
                    .event(event, &shown(&new))
                    .before(&shown(&old))
                    .after(&shown(&new))
                    .detail("logged_model", home.model);
                tx.record(&ctx, record)?;
                Ok(new)
            })
            .await
    }
}

/// Writes those of a run's metrics that also describe a model. The models must lie in the run's
/// own experiment.
pub(crate) fn write_model_metrics(
    tx: &mut Tx<'_>,
    (run, experiment): (RunId, i64),
    metrics: &[LoggedMetric],
) -> Result<()> {
    let mut described = Vec::new();
    for metric in metrics {
        let Some(name) = &metric.model else { continue };
        let model = ModelId::parse(name).ok_or_else(|| no_model(name))?;
        let home = store::address(tx, model)?.filter(|(_, found, _)| *found == experiment);
        home.ok_or_else(|| no_model(name))?;
        described.push((model, metric));
    }
    // All of them are there: from here on nothing is refused.
    for (model, metric) in described {
        let (dataset_name, dataset_digest) = metric.dataset.clone().unzip();
        let described = ModelMetric {
            key: metric.key.clone(),
            value: metric.point.value(),
            timestamp: metric.point.timestamp(),
            step: metric.point.step(),
            run,
            dataset_name,
            dataset_digest,
        };
        store::add_metric(tx, model, &described)?;
    }
    Ok(())
}

fn check_name(name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let bad = name.contains(['/', ':', '.', '%', '"', '\'']);
    if bad {
        return Err(refused(format!(
            "Invalid model name ({name:?}) provided. Model name must be a non-empty string and \
             cannot contain the following characters: ('/', ':', '.', '%', '\"', \"'\")"
        ))
        .at("name"));
    }
    if name.chars().count() > 500 {
        return Err(invalid("name", &json!(name), "exceeds the maximum length of 500 characters"));
    }
    Ok(())
}

pub(crate) fn no_model(id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    Error::new(&code::NOT_FOUND, format!("Logged model with ID '{id}' not found."))
}

/// What events and the audit log say of a model.
fn shown(model: &LoggedModel) -> serde_json::Value {
    json!({
        "model_id": model.id.to_string(),
        "experiment_id": model.experiment_id.to_string(),
        "name": model.name,
        "status": model.status.as_str(),
        "source_run_id": model.source_run,
        "lifecycle_stage": model.stage,
    })
}
