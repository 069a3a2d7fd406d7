//! Making, reading, changing and deleting runs.

use falaj_base::{Action, Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::refused;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::id::RunId;
use super::load::load;
use super::log::{RUN_NAME_TAG, check_tag};
use super::run::{Run, RunInfo, RunStatus};
use super::store::{self, Update};
use super::{naming, repeat, touch};
use crate::access::{Home, no_run};
use crate::artifact::location_below;
use crate::experiment::{ExperimentId, Stage};
use crate::key::{KeyKind, Learned};
use crate::{RUN_DELETE, RUN_READ, RUN_WRITE, Tracking};

/// What is needed to make one.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub experiment: ExperimentId,
    pub name: Option<String>,
    pub user_id: String,
    pub start_time: i64,
    pub tags: Vec<(String, String)>,
}

impl Tracking {
    pub async fn create_run(&self, call: &Call, new: NewRun) -> Result<Run> {
        let print = repeat::fingerprint(&call.ctx, call, &new)?;
        let planned = self.plan_run(call, new, RunStatus::Running, Vec::new()).await?;
        let (ctx, this, connection) = (call.ctx.clone(), self.clone(), call.connection.clone());
        let (run, made) = self
            .db()
            .write(move |tx| {
                if let Some(print) = &print {
                    if let Some(made) = this.0.repeats.find(tx, print)? {
                        let change =
                            Change::new(&RUN_WRITE, planned.resource()).detail("repeated", made);
                        tx.record(&ctx, change)?;
                        let run = load(tx, &[made])?.pop();
                        return Ok((
                            run.ok_or_else(|| Error::internal("a run is not there"))?,
                            None,
                        ));
                    }
                    this.0.repeats.watch(*print, connection.as_ref());
                }
                let made = planned.write(tx, &ctx)?;
                if let Some(print) = &print {
                    this.0.repeats.note(tx, print, planned.id(), made.version)?;
                }
                let run = load(tx, &[planned.id()])?.pop();
                let run = run.ok_or_else(|| Error::internal("a new run is not there"))?;
                Ok((run, Some((planned, made))))
            })
            .await?;
        if let Some((planned, made)) = made {
            planned.is_made(made);
        }
        Ok(run)
    }

    pub async fn run(&self, call: &Call, run: &str) -> Result<Run> {
        let home = self.home(call, run, &RUN_READ).await?;
        let found = self.db().read(move |tx| load(tx, &[home.run])).await?;
        found.into_iter().next().ok_or_else(|| no_run(run))
    }

    pub async fn update_run(
        &self,
        call: &Call,
        run: &str,
        status: Option<RunStatus>,
        end_time: Option<i64>,
        name: Option<String>,
    ) -> Result<RunInfo> {
        let home = self.home(call, run, &RUN_WRITE).await?;
        let (this, ctx) = (self.clone(), call.ctx.clone());
        let (info, learned) = self
            .db()
            .write(move |tx| {
                let old = require_active_run(tx, home.run)?;
                let name = name.filter(|name| !name.is_empty());
                let tags: Vec<_> =
                    name.iter().map(|name| (RUN_NAME_TAG.to_owned(), name.clone())).collect();
                store::update(tx, home.run, &Update { status, end_time, name })?;
                let learned = this.write_tags(tx, &old, &tags)?;
                let new = store::find(tx, home.run)?
                    .ok_or_else(|| Error::internal("an updated run is not there"))?;
                let event = match new.status {
                    RunStatus::Finished | RunStatus::Failed | RunStatus::Killed
                        if new.status != old.status =>
                    {
                        "run.finished"
                    }
                    _ => "run.updated",
                };
                let change = Change::new(&RUN_WRITE, &home.resource)
                    .event(event, &shown(&new))
                    .before(&shown(&old))
                    .after(&shown(&new))
                    .detail("run", home.run);
                tx.record(&ctx, change)?;
                Ok((new, learned))
            })
            .await?;
        self.0.keys.remember(learned);
        Ok(info)
    }

    /// To the bin. One that is there already stays there.
    pub async fn delete_run(&self, call: &Call, run: &str) -> Result<()> {
        self.move_run(call, run, Stage::Deleted, "run.deleted", &RUN_DELETE).await
    }

    pub async fn restore_run(&self, call: &Call, run: &str) -> Result<()> {
        self.move_run(call, run, Stage::Active, "run.restored", &RUN_DELETE).await
    }

    async fn move_run(
        &self,
        call: &Call,
        run: &str,
        stage: Stage,
        event: &'static str,
        action: &'static Action,
    ) -> Result<()> {
        let Home { run, resource, .. } = self.home(call, run, action).await?;
        let (ctx, now) = (call.ctx.clone(), self.now_ms());
        self.db()
            .write(move |tx| {
                touch::touch(tx, run)?.ok_or_else(|| no_run(&run.to_string()))?;
                store::set_stage(tx, run, stage, now)?;
                let data = json!({ "run_id": run.to_string(), "lifecycle_stage": stage });
                let change = Change::new(action, &resource)
                    .event(event, &data)
                    .after(&data)
                    .detail("run", run);
                tx.record(&ctx, change)
            })
            .await
    }

    /// Tags as they are kept: checked, and cut where they are too long.
    pub(super) fn checked_tags(
        &self,
        tags: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>> {
        let limit = self.config().max_tag_value;
        let mut kept = Vec::with_capacity(tags.len());
        for (key, value) in tags {
            check_tag("key", &key)?;
            kept.push((key, super::log::cut(value, limit)));
        }
        Ok(kept)
    }

    /// Writes tags; the one that holds the run's name renames the run as well, unless it is empty:
    /// then nothing happens, as in MLflow.
    pub(super) fn write_tags(
        &self,
        tx: &mut Tx<'_>,
        run: &RunInfo,
        tags: &[(String, String)],
    ) -> Result<Learned> {
        let nameless = |(key, value): &&(String, String)| key == RUN_NAME_TAG && value.is_empty();
        let tags: Vec<_> = tags.iter().filter(|tag| !nameless(tag)).collect();
        let names = tags.iter().map(|(key, _)| key.as_str());
        let (keys, learned) = self.0.keys.number(tx, (run.experiment, KeyKind::Tag), names)?;
        for (key, (name, value)) in keys.into_iter().zip(tags) {
            store::set_tag(tx, run.id, key, value)?;
            if name == RUN_NAME_TAG && *value != run.name {
                let rename = Update { name: Some(value.clone()), ..Update::default() };
                store::update(tx, run.id, &rename)?;
            }
        }
        Ok(learned)
    }
}

/// The run as it is now, touched; refused if it is in the bin.
pub(crate) fn require_active_run(tx: &mut Tx<'_>, run: RunId) -> Result<RunInfo> {
    touch::touch(tx, run)?;
    let info = store::find(tx, run)?.ok_or_else(|| no_run(&run.to_string()))?;
    check_active(run, info.stage)?;
    Ok(info)
}

pub(crate) fn check_active(run: RunId, stage: Stage) -> Result<()> {
    if stage == Stage::Active {
        return Ok(());
    }
    let text = format!(
        "The run {run} must be in the 'active' state. Current state is {}.",
        stage.as_str()
    );
    Err(Error::new(&code::INVALID_INPUT, text))
}

/// The name is given as a field, as a tag, as both alike, or not at all.
pub(super) fn reconciled_name(
    name: Option<String>,
    tags: &mut Vec<(String, String)>,
) -> Result<String> {
    let name = name.filter(|name| !name.is_empty());
    let tagged = tags.iter().find(|(key, _)| key == RUN_NAME_TAG).map(|(_, value)| value.clone());
    match (name, tagged) {
        (Some(name), Some(tagged)) if name != tagged => Err(refused(format!(
            "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different \
             values (run_name='{name}', mlflow.runName='{tagged}')."
        ))),
        (_, Some(tagged)) => Ok(tagged),
        (name, None) => {
            let name = name.unwrap_or_else(naming::random);
            tags.push((RUN_NAME_TAG.to_owned(), name.clone()));
            Ok(name)
        }
    }
}

/// `mlflow-artifacts:/7/<run>/artifacts`, whatever the location ends with.
pub(super) fn artifact_uri(location: &str, run: RunId) -> String {
    location_below(location, format_args!("{run}/artifacts"))
}

/// What events and the audit log say of a run.
pub(super) fn shown(run: &RunInfo) -> serde_json::Value {
    json!({
        "run_id": run.id.to_string(),
        "experiment_id": run.experiment_id.to_string(),
        "run_name": run.name,
        "status": run.status.as_str(),
        "lifecycle_stage": run.stage,
    })
}
