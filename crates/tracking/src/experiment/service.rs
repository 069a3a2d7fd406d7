//! The verbs on experiments.

use falaj_base::{Action, Ctx, Error, ProjectId, Resource, Result, code};
use falaj_mlflow::error::{refused, too_long};
use falaj_mlflow::names::check_key;
use falaj_mlflow::{Call, Place};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::experiment::{Experiment, ExperimentId, Stage};
use super::store;
use crate::access::{allowed, no_experiment, resource};
use crate::artifact::{climbs, collects_tokens, has_plain_query};
use crate::{
    EXPERIMENT_CREATE, EXPERIMENT_DELETE, EXPERIMENT_READ, EXPERIMENT_UPDATE, Tracking, key,
};

/// The longest name, and the longest value of a tag, in characters.
const MAX_NAME: usize = 500;
const MAX_TAG_VALUE: usize = 20_000;

/// What is needed to make one.
#[derive(Clone, Debug, Default)]
pub struct NewExperiment {
    pub name: String,
    pub artifact_location: Option<String>,
    pub tags: Vec<(String, String)>,
}

impl Tracking {
    pub async fn create_experiment(&self, call: &Call, new: NewExperiment) -> Result<ExperimentId> {
        check_name(&new.name)?;
        for (key, value) in &new.tags {
            check_tag(key, value)?;
        }
        if let Some(location) = &new.artifact_location {
            check_location(location)?;
        }
        self.make_default(call).await?;
        let project = call.place.id;
        // Its id is only known once its transaction runs; until then its name stands for it.
        let wanted =
            Resource::new("experiment", format!("{project}/{}", new.name), call.place.scope())
                .with(call.place.attributes())
                .shown_as(&new.name);
        call.ctx.authorize(&EXPERIMENT_CREATE, &wanted).await?;
        let (ctx, now) = (call.ctx.clone(), self.now_ms());
        self.db()
            .write(move |tx| {
                tx.lock(&format!("experiments/{project}"))?;
                if store::find_by_name(tx, project, &new.name)?.is_some() {
                    return Err(taken(&new.name));
                }
                let id = store::next_id(tx, project)?;
                let made = experiment(tx, id, new, now)?;
                store::insert(tx, project, &made)?;
                let change = Change::new(&EXPERIMENT_CREATE, &wanted)
                    .event("experiment.created", &shown(&made))
                    .after(&shown(&made))
                    .detail("experiment", id);
                tx.record(&ctx, change)?;
                Ok(id)
            })
            .await
    }

    /// Every project has the experiment 0 from the start, as clients expect; it is made when the
    /// project is first used.
    pub(crate) async fn make_default(&self, call: &Call) -> Result<Experiment> {
        let project = call.place.id;
        let found =
            self.db().glance(move |tx| store::find(tx, project, ExperimentId::DEFAULT)).await?;
        if let Some(found) = found {
            return Ok(found);
        }
        let now = self.now_ms();
        let system = Ctx::system("first-use");
        let resource = resource(&call.place, ExperimentId::DEFAULT, false);
        system.authorize(&EXPERIMENT_CREATE, &resource).await?;
        self.db()
            .write(move |tx| {
                tx.lock(&format!("experiments/{project}"))?;
                if let Some(found) = store::find(tx, project, ExperimentId::DEFAULT)? {
                    return Ok(found);
                }
                let new = NewExperiment { name: "Default".to_owned(), ..NewExperiment::default() };
                let made = experiment(tx, ExperimentId::DEFAULT, new, now)?;
                store::insert(tx, project, &made)?;
                let change = Change::new(&EXPERIMENT_CREATE, &resource)
                    .event("experiment.created", &shown(&made))
                    .after(&shown(&made));
                tx.record(&system, change)?;
                Ok(made)
            })
            .await
    }

    pub async fn experiment_by_name(&self, call: &Call, name: String) -> Result<Experiment> {
        if name == "Default" {
            self.make_default(call).await?;
        }
        let (project, wanted) = (call.place.id, name.clone());
        let found = self.db().glance(move |tx| store::find_by_name(tx, project, &wanted)).await?;
        let not_there = || {
            let text = format!("Could not find experiment with name '{name}'");
            Error::new(&code::NOT_FOUND, text)
        };
        let resource = match &found {
            Some(experiment) => resource(&call.place, experiment.id, false),
            None => Resource::absent("experiment", &name, call.place.scope()),
        };
        allowed(&call.ctx, &EXPERIMENT_READ, &resource, not_there).await?;
        found.ok_or_else(not_there)
    }

    pub async fn rename_experiment(
        &self,
        call: &Call,
        id: ExperimentId,
        name: Option<String>,
    ) -> Result<()> {
        if let Some(name) = &name {
            check_name(name)?;
        }
        self.change_experiment(
            call,
            id,
            &EXPERIMENT_UPDATE,
            "experiment.updated",
            move |tx, old, now| {
                if old.stage != Stage::Active {
                    let text = "Cannot rename a non-active experiment.";
                    return Err(Error::new(&code::INVALID_STATE, text));
                }
                match &name {
                    Some(name) => store::rename(tx, old.no, name, now).map_err(|error| {
                        if *error.code() == code::ALREADY_EXISTS { taken(name) } else { error }
                    }),
                    None => Ok(()),
                }
            },
        )
        .await
    }

    /// To the bin, with all its runs. One that is there already is not found, as in MLflow.
    pub async fn delete_experiment(&self, call: &Call, id: ExperimentId) -> Result<()> {
        self.change_experiment(
            call,
            id,
            &EXPERIMENT_DELETE,
            "experiment.deleted",
            move |tx, old, now| {
                if old.stage == Stage::Deleted {
                    return Err(no_experiment(id));
                }
                store::set_stage(tx, old.no, Stage::Deleted, now).map(drop)
            },
        )
        .await
    }

    /// Back from the bin, with all its runs.
    pub async fn restore_experiment(&self, call: &Call, id: ExperimentId) -> Result<()> {
        self.change_experiment(
            call,
            id,
            &EXPERIMENT_UPDATE,
            "experiment.restored",
            move |tx, old, now| {
                if old.stage == Stage::Active {
                    return Err(no_experiment(id));
                }
                store::set_stage(tx, old.no, Stage::Active, now).map(drop)
            },
        )
        .await
    }

    pub async fn set_experiment_tag(
        &self,
        call: &Call,
        id: ExperimentId,
        key: String,
        value: String,
    ) -> Result<()> {
        check_tag(&key, &value)?;
        self.change_experiment(
            call,
            id,
            &EXPERIMENT_UPDATE,
            "experiment.updated",
            move |tx, old, _| {
                require_active(old)?;
                store::set_tag(tx, old.no, &key, &value)
            },
        )
        .await
    }

    pub async fn delete_experiment_tag(
        &self,
        call: &Call,
        id: ExperimentId,
        key: String,
    ) -> Result<()> {
        self.change_experiment(
            call,
            id,
            &EXPERIMENT_UPDATE,
            "experiment.updated",
            move |tx, old, _| {
                require_active(old)?;
                if store::delete_tag(tx, old.no, &key)? {
                    return Ok(());
                }
                let text = format!("No tag with name: {key} in experiment with id {id}");
                Err(Error::new(&code::NOT_FOUND, text))
            },
        )
        .await
    }

    /// One change of one experiment, read again inside its transaction and put on record.
    async fn change_experiment(
        &self,
        call: &Call,
        id: ExperimentId,
        action: &'static Action,
        event: &'static str,
        change: impl Fn(&mut Tx<'_>, &Experiment, i64) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.experiment(call, id, action).await?;
        let resource = resource(&call.place, id, false);
        let (ctx, project, now) = (call.ctx.clone(), call.place.id, self.now_ms());
        self.db()
            .write(move |tx| {
                tx.lock(&format!("experiments/{project}"))?;
                store::lock(tx, project, id)?;
                let old = store::find(tx, project, id)?.ok_or_else(|| no_experiment(id))?;
                change(tx, &old, now)?;
                let new = store::find(tx, project, id)?.ok_or_else(|| no_experiment(id))?;
                let record = Change::new(action, &resource)
                    .event(event, &shown(&new))
                    .before(&shown(&old))
                    .after(&shown(&new));
                tx.record(&ctx, record)
            })
            .await
    }

    /// All experiments of the project that the caller may see.
    pub(crate) async fn visible_experiments(&self, call: &Call) -> Result<Vec<Experiment>> {
        self.make_default(call).await?;
        let project = call.place.id;
        let all = self.db().read(move |tx| store::all(tx, project)).await?;
        call.ctx.filtered(&EXPERIMENT_READ);
        let visible = |place: &Place, experiment: &Experiment| {
            call.ctx.allows(&EXPERIMENT_READ, &resource(place, experiment.id, false))
        };
        Ok(all.into_iter().filter(|experiment| visible(&call.place, experiment)).collect())
    }

    /// The experiments that are not in the bin and that the caller may see: their numbers in the
    /// database, and their ids.
    pub async fn active_experiments(&self, call: &Call) -> Result<Vec<(i64, ExperimentId)>> {
        let visible = self.visible_experiments(call).await?.into_iter();
        let active = visible.filter(|experiment| experiment.stage == Stage::Active);
        Ok(active.map(|experiment| (experiment.no, experiment.id)).collect())
    }
}

fn experiment(
    tx: &mut Tx<'_>,
    id: ExperimentId,
    new: NewExperiment,
    now: i64,
) -> Result<Experiment> {
    let location = new.artifact_location.filter(|location| !location.is_empty());
    Ok(Experiment {
        no: key::next(tx, "experiment")?,
        id,
        name: new.name,
        artifact_location: location.unwrap_or_else(|| format!("mlflow-artifacts:/{id}")),
        stage: Stage::Active,
        created_at: now,
        updated_at: now,
        tags: new.tags,
    })
}

/// What events and the audit log say of it.
fn shown(experiment: &Experiment) -> serde_json::Value {
    json!({
        "experiment_id": experiment.id.to_string(),
        "name": experiment.name,
        "lifecycle_stage": experiment.stage,
        "tags": experiment.tags.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
    })
}

/// Refuses to write to what is in the bin.
pub fn require_active(experiment: &Experiment) -> Result<()> {
    check_active(experiment.id, experiment.stage)
}

/// The same inside the transaction that adds something to the experiment, so that it cannot go to
/// the bin in between.
pub(crate) fn require_active_for(
    tx: &mut Tx<'_>,
    project: ProjectId,
    id: ExperimentId,
) -> Result<()> {
    let stage = store::stage_for_adding(tx, project, id)?.ok_or_else(|| no_experiment(id))?;
    check_active(id, stage)
}

pub(crate) fn check_active(id: ExperimentId, stage: Stage) -> Result<()> {
    if stage == Stage::Active {
        return Ok(());
    }
    Err(refused(format!(
        "The experiment {id} must be in the 'active' state. Current state is {}.",
        stage.as_str()
    )))
}

fn taken(name: &str) -> Error {
    Error::new(&code::ALREADY_EXISTS, format!("Experiment(name={name}) already exists."))
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(refused("Invalid experiment name: ''").at("name"));
    }
    if name.chars().count() > MAX_NAME {
        return Err(too_long("name", MAX_NAME));
    }
    Ok(())
}

fn check_tag(name: &str, value: &str) -> Result<()> {
    check_key("key", name)?;
    if value.chars().count() > MAX_TAG_VALUE {
        return Err(too_long("value", MAX_TAG_VALUE));
    }
    Ok(())
}

/// A location is only ever read by clients, with their own means; it is kept as it was given. What
/// would smuggle a query or a path upwards into the clients' own resolution is refused.
fn check_location(location: &str) -> Result<()> {
    let upwards = climbs(location) || !has_plain_query(location);
    if location.contains(['#', '\0']) || upwards || location.chars().count() > 256 {
        let shown: String = location.chars().take(256).collect();
        return Err(refused(format!(
            "Invalid artifact location '{shown}': it has no '..' or '#', a query only as in \
             's3://bucket/folder?key=value', and at most 256 characters."
        ))
        .at("artifact_location"));
    }
    if collects_tokens(location) {
        return Err(refused(format!(
            "Invalid artifact location '{location}': clients would send their tokens to the host \
             that it names. Leave it out to keep artifacts here, or name a store such as \
             s3://bucket/folder."
        ))
        .at("artifact_location"));
    }
    Ok(())
}
