//! Legal holds: named, with a reason, on a whole project or on one experiment.

use falaj_base::{Error, Name, ProjectId, Resource, Result, Timestamp, code};
use falaj_mlflow::Call;
use falaj_store::db::{Row, Tx, params};
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::ExperimentId;
use crate::{EXPERIMENT_READ, HOLD_READ, HOLD_WRITE, Tracking};

/// Nothing under it may be deleted for good.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Hold {
    pub name: Name,
    /// The experiment it holds; the whole project if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment_id: Option<String>,
    pub reason: String,
    /// The id of who set it, and the name they had then.
    pub set_by: String,
    pub set_by_name: String,
    pub set_at: Timestamp,
}

/// What is needed to set one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHold {
    /// Why, for whoever meets the hold later.
    #[schemars(length(min = 1, max = 1000))]
    pub reason: String,
    /// The experiment to hold; the whole project if absent.
    pub experiment_id: Option<String>,
}

impl Tracking {
    /// Sets a hold. Setting it again with the same words changes nothing; with others it is
    /// refused, because a hold is released before it is changed.
    pub async fn set_hold(&self, call: &Call, name: Name, new: NewHold) -> Result<Hold> {
        let length = new.reason.chars().count();
        if !(1..=1000).contains(&length) || new.reason.chars().any(char::is_control) {
            let allowed = "1 to 1000 characters, none of them a control character";
            return Err(Error::invalid("reason", new.reason, allowed));
        }
        let resource = resource(call, &name);
        call.ctx.authorize(&HOLD_WRITE, &resource).await?;
        let experiment = match &new.experiment_id {
            Some(id) => Some(self.experiment(call, id.parse()?, &EXPERIMENT_READ).await?.id),
            None => None,
        };
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let most = self.config().purge.max_holds;
        let hold = Hold {
            name,
            experiment_id: experiment.map(|id| id.to_string()),
            reason: new.reason,
            set_by: call.ctx.principal.id.to_string(),
            set_by_name: call.ctx.principal.name.clone(),
            set_at: self.db().now(),
        };
        self.db()
            .write(move |tx| {
                lock(tx, project)?;
                let others = all(tx, project)?;
                if let Some(old) = others.iter().find(|old| old.name == hold.name) {
                    if old.reason != hold.reason || old.experiment_id != hold.experiment_id {
                        return Err(Error::already_exists("legal hold", &hold.name));
                    }
                    tx.record(&ctx, Change::new(&HOLD_WRITE, &resource).after(old))?;
                    return Ok(old.clone());
                }
                if others.len() >= most {
                    let text = format!("the project has {most} legal holds, and no more fit");
                    return Err(Error::new(&code::CONFLICT, text));
                }
                insert(tx, project, experiment, &hold)?;
                let change = Change::new(&HOLD_WRITE, &resource)
                    .event("hold.set", &hold)
                    .after(&hold)
                    .detail("reason", &hold.reason)
                    .detail("experiment", hold.experiment_id.as_deref().unwrap_or("all"));
                tx.record(&ctx, change)?;
                Ok(hold)
            })
            .await
    }

    pub async fn release_hold(&self, call: &Call, name: Name) -> Result<()> {
        let project = call.place.id;
        let resource = resource(call, &name);
        call.ctx.authorize(&HOLD_WRITE, &resource).await?;
        let ctx = call.ctx.clone();
        self.db()
            .write(move |tx| {
                lock(tx, project)?;
                let old = all(tx, project)?.into_iter().find(|old| old.name == name);
                let old = old.ok_or_else(|| Error::not_found("legal hold", &name))?;
                let sql = "DELETE FROM legal_hold WHERE project = $1 AND name = $2";
                tx.execute(sql, &params![project, name.as_str()])?;
                let change = Change::new(&HOLD_WRITE, &resource)
                    .event("hold.released", &old)
                    .before(&old)
                    .detail("reason", &old.reason)
                    .detail("released", true);
                tx.record(&ctx, change)
            })
            .await
    }

    /// All holds of a project, by name.
    pub async fn holds(&self, call: &Call) -> Result<Vec<Hold>> {
        let resource = call.place.resource();
        call.ctx.authorize(&HOLD_READ, &resource).await?;
        let project = call.place.id;
        self.db().read(move |tx| all(tx, project)).await
    }
}

/// What a hold is authorised on.
fn resource(call: &Call, name: &Name) -> Resource {
    Resource::new("hold", format!("{}/{name}", call.place.id), call.place.scope())
        .with(call.place.attributes())
        .shown_as(name)
}

/// A hold that is being set and a purge must not pass each other by.
pub(super) fn lock(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    tx.lock(&lock_name(project))
}

fn lock_name(project: ProjectId) -> String {
    format!("legal-hold/{project}")
}

/// Refuses if a hold covers the experiment; `None` is what belongs to no experiment.
pub(super) fn check(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiment: Option<ExperimentId>,
) -> Result<()> {
    lock(tx, project)?;
    let covering = all(tx, project)?.into_iter().find(|hold| hold.covers(experiment));
    covering.map_or(Ok(()), |hold| Err(hold.refusal()))
}

/// The same for files that would be deleted or replaced outside of a purge.
pub fn check_files(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiments: impl IntoIterator<Item = Option<ExperimentId>>,
) -> Result<()> {
    tx.lock_shared(&lock_name(project))?;
    let others = all(tx, project)?;
    for experiment in experiments {
        if let Some(hold) = others.iter().find(|hold| hold.covers(experiment)) {
            return Err(hold.refusal());
        }
    }
    Ok(())
}

impl Hold {
    pub(super) fn covers(&self, experiment: Option<ExperimentId>) -> bool {
        match &self.experiment_id {
            None => true,
            Some(held) => experiment.is_some_and(|id| id.to_string() == *held),
        }
    }

    pub(super) fn refusal(&self) -> Error {
        let what = match &self.experiment_id {
            Some(id) => format!("experiment {id}"),
            None => "the project".to_owned(),
        };
        let text = format!(
            "{what} is under the legal hold `{}`, set by {} on {}: {}",
            self.name, self.set_by_name, self.set_at, self.reason
        );
        Error::new(&code::LEGAL_HOLD, text)
    }
}

pub(super) fn all(tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<Hold>> {
    let rows = tx.query(
        "SELECT name, experiment, reason, set_by, set_by_name, set_at FROM legal_hold
         WHERE project = $1 ORDER BY name",
        &params![project],
    )?;
    rows.iter().map(read).collect()
}

fn insert(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiment: Option<ExperimentId>,
    hold: &Hold,
) -> Result<()> {
    tx.execute(
        "INSERT INTO legal_hold
             (project, name, experiment, reason, set_by, set_by_name, set_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &params![
            project,
            hold.name.as_str(),
            experiment,
            &hold.reason,
            &hold.set_by,
            &hold.set_by_name,
            hold.set_at,
        ],
    )
    .map(drop)
}

fn read(row: &Row) -> Result<Hold> {
    Ok(Hold {
        name: Name::new(row.get::<String>("name")?)?,
        experiment_id: row.get::<Option<ExperimentId>>("experiment")?.map(|id| id.to_string()),
        reason: row.get("reason")?,
        set_by: row.get("set_by")?,
        set_by_name: row.get("set_by_name")?,
        set_at: row.get("set_at")?,
    })
}
