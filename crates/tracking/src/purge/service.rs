//! Purging by name.

use std::collections::BTreeMap;
use std::time::Instant;

use falaj_base::{Ctx, Error, ProjectId, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::keeper::References;
use super::store::{self, Subject, Task, Which};
use super::{Keeper, hold};
use crate::access::{no_experiment, no_run};
use crate::artifact::proxied_path;
use crate::experiment::{ExperimentId, Stage, store as experiments};
use crate::logged_model::{ModelId, no_model, store as models};
use crate::run::{RunId, store as runs, touch};
use crate::{EXPERIMENT_PURGE, RUN_PURGE, Tracking};

/// What a purge did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Gone {
    /// Files deleted so far, and their bytes. Bytes shared with other files stay for those.
    pub files: u64,
    pub bytes: u64,
    /// Whether rows or files are still being cleared away in the background.
    pub pending: bool,
}

/// On whose word, and how sternly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act<'a> {
    pub(super) ctx: &'a Ctx,
    pub(super) project: ProjectId,
    /// What it is recorded on.
    pub(super) resource: &'a Resource,
    /// Also what is not in the bin.
    pub(super) force: bool,
    /// Small facts for the audit log.
    pub(super) why: &'static str,
}

impl Act<'_> {
    /// Leaves what belongs to the subject to be cleared away.
    fn queue(
        &self,
        tx: &mut Tx<'_>,
        subject: Subject,
        (experiment, experiment_id): (i64, ExperimentId),
        files: Option<&str>,
    ) -> Result<()> {
        let task = Task {
            id: Uuid::now_v7(),
            project: self.project,
            subject,
            experiment,
            experiment_id,
            folder: files.and_then(proxied_path).map(str::to_owned),
        };
        store::add(tx, &task)
    }

    fn record(&self, tx: &mut Tx<'_>, change: Change<'_>) -> Result<()> {
        tx.record(self.ctx, change.detail("why", self.why))
    }
}

impl Tracking {
    pub async fn purge_run(&self, call: &Call, run: &str, force: bool) -> Result<Gone> {
        let home = self.home(call, run, &RUN_PURGE).await?;
        let (ctx, project, this) = (call.ctx.clone(), call.place.id, self.clone());
        self.db()
            .write(move |tx| {
                let resource = &home.resource;
                let act = Act { ctx: &ctx, project, resource, force, why: "asked for" };
                let kept = References::read(tx, project, this.keeper())?;
                condemn_run(tx, act, home.experiment_id, home.run, &kept)
            })
            .await?;
        self.0.homes.forget(home.run);
        self.clear_soon(home.experiment).await
    }

    pub async fn purge_logged_model(&self, call: &Call, model: &str, force: bool) -> Result<Gone> {
        let home = self.logged_model_home(call, model, &RUN_PURGE).await?;
        let (ctx, project, this) = (call.ctx.clone(), call.place.id, self.clone());
        self.db()
            .write(move |tx| {
                let resource = &home.resource;
                let act = Act { ctx: &ctx, project, resource, force, why: "asked for" };
                let kept = References::read(tx, project, this.keeper())?;
                condemn_model(tx, act, home.experiment_id, home.model, &kept)
            })
            .await?;
        self.clear_soon(home.experiment).await
    }

    pub async fn purge_experiment(
        &self,
        call: &Call,
        id: ExperimentId,
        force: bool,
    ) -> Result<Gone> {
        let found = self.experiment(call, id, &EXPERIMENT_PURGE).await?;
        // It would be there again at once, under the same id, while its files are still going.
        if id == ExperimentId::DEFAULT {
            let text = "every project has experiment 0; purge its runs instead";
            return Err(Error::new(&code::CONFLICT, text).at("experiment_id"));
        }
        let resource = crate::access::resource(&call.place, id, false);
        let (ctx, project, this) = (call.ctx.clone(), call.place.id, self.clone());
        self.db()
            .write(move |tx| {
                let act = Act { ctx: &ctx, project, resource: &resource, force, why: "asked for" };
                let kept = References::read(tx, project, this.keeper())?;
                condemn_experiment(tx, act, id, &kept)
            })
            .await?;
        self.0.homes.clear();
        self.clear_soon(found.no).await
    }

    pub(super) fn keeper(&self) -> Option<&dyn Keeper> {
        self.0.keeper.get().map(AsRef::as_ref)
    }

    /// Clears away for as long as a caller should wait for it.
    pub(super) async fn clear_soon(&self, experiment: i64) -> Result<Gone> {
        let until = Instant::now() + self.config().purge.patience.get();
        self.clear_away(Which::Experiment(experiment), Some(until)).await
    }
}

/// Puts the purge of a run on record and takes the run out of sight. Gives the experiment's number.
pub(super) fn condemn_run(
    tx: &mut Tx<'_>,
    act: Act<'_>,
    experiment_id: ExperimentId,
    run: RunId,
    kept: &References,
) -> Result<i64> {
    kept.check_run(run)?;
    // Whoever is writing to it is done, and nobody begins. Those who write files ask for holds
    // last, and so does this: nobody waits for each other crosswise.
    crate::artifact::lock_run(tx, act.project, run)?;
    hold::check(tx, act.project, Some(experiment_id))?;
    let gone = || no_run(&run.to_string());
    touch::touch(tx, run)?.ok_or_else(gone)?;
    let info = runs::find(tx, run)?.ok_or_else(gone)?;
    check_stage(act.force, info.stage, &format!("run {run}"))?;
    runs::delete(tx, run)?;
    store::reset(tx, info.experiment)?;
    let shown = json!({
        "run_id": run.to_string(), "experiment_id": experiment_id.to_string(),
        "run_name": info.name,
    });
    act.queue(tx, Subject::Run(run), (info.experiment, experiment_id), Some(&info.artifact_uri))?;
    let change = Change::new(&RUN_PURGE, act.resource).event("run.purged", &shown);
    act.record(tx, change.before(&shown).detail("run", run))?;
    Ok(info.experiment)
}

/// The same for a logged model.
pub(super) fn condemn_model(
    tx: &mut Tx<'_>,
    act: Act<'_>,
    experiment_id: ExperimentId,
    model: ModelId,
    kept: &References,
) -> Result<i64> {
    kept.check_model(model)?;
    tx.lock(&format!("logged-model/{model}"))?;
    crate::artifact::lock_model(tx, act.project, &model.to_string())?;
    hold::check(tx, act.project, Some(experiment_id))?;
    let found = models::find(tx, model)?.ok_or_else(|| no_model(&model.to_string()))?;
    check_stage(act.force, found.stage, &format!("logged model {model}"))?;
    models::delete(tx, model)?;
    let shown = json!({
        "model_id": model.to_string(), "experiment_id": experiment_id.to_string(),
        "name": found.name,
    });
    act.queue(
        tx,
        Subject::Model(model),
        (found.experiment, experiment_id),
        Some(&found.artifact_uri),
    )?;
    let change = Change::new(&RUN_PURGE, act.resource).event("logged-model.purged", &shown);
    act.record(tx, change.before(&shown).detail("logged_model", model))?;
    Ok(found.experiment)
}

/// The same for an experiment and everything in it.
pub(super) fn condemn_experiment(
    tx: &mut Tx<'_>,
    act: Act<'_>,
    id: ExperimentId,
    kept: &References,
) -> Result<i64> {
    kept.check_experiment(id)?;
    tx.lock(&format!("experiments/{}", act.project))?;
    // Runs, models and files that are on their way in come in first, or not at all.
    experiments::lock(tx, act.project, id)?;
    hold::check(tx, act.project, Some(id))?;
    let found = experiments::find(tx, act.project, id)?.ok_or_else(|| no_experiment(id))?;
    check_stage(act.force, found.stage, &format!("experiment {id}"))?;
    store::hide_experiment(tx, act.project, found.no, id)?;
    store::reset(tx, found.no)?;
    let tags: BTreeMap<_, _> = found.tags.iter().cloned().collect();
    let shown = json!({ "experiment_id": id.to_string(), "name": found.name, "tags": tags });
    act.queue(tx, Subject::Experiment, (found.no, id), None)?;
    let change = Change::new(&EXPERIMENT_PURGE, act.resource).event("experiment.purged", &shown);
    act.record(tx, change.before(&shown).detail("experiment", id))?;
    Ok(found.no)
}

fn check_stage(force: bool, stage: Stage, what: &str) -> Result<()> {
    if force || stage == Stage::Deleted {
        return Ok(());
    }
    let text = format!("{what} is not deleted: delete it first, or force the purge");
    Err(Error::new(&code::INVALID_STATE, text))
}
