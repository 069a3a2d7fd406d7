//! Runs that are made in the same transaction as something else, such as the job that they are of: both are
//! there, or neither.
//!
//! Must hold: what is planned was authorised and checked, so that writing it is all that is left.

use falaj_base::{Ctx, ProjectId, Resource, Result};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::id::RunId;
use super::log::Batch;
use super::run::{RunInfo, RunStatus};
use super::service::{NewRun, artifact_uri, reconciled_name, shown};
use super::store;
use crate::access::resource;
use crate::experiment::{Stage, require_active, require_active_for};
use crate::homes::Address;
use crate::key::{KeyKind, Learned};
use crate::{RUN_WRITE, Tracking};

/// A run that may be made, and is not yet.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    tracking: Tracking,
    info: RunInfo,
    tags: Vec<(String, String)>,
    params: Vec<(String, String)>,
    resource: Resource,
    project: ProjectId,
}

/// What to tell [`PlannedRun::is_made`] once the transaction has committed.
#[derive(Debug)]
#[must_use = "it is remembered after the commit"]
pub struct Made {
    learned: Learned,
    /// Of the new run.
    pub(super) version: i64,
}

impl Tracking {
    /// Plans a run with its parameters.
    pub async fn plan_run(
        &self,
        call: &Call,
        new: NewRun,
        status: RunStatus,
        params: Vec<(String, String)>,
    ) -> Result<PlannedRun> {
        let params = self.checked(Batch { params, ..Batch::default() })?.params;
        let mut tags = self.checked_tags(new.tags)?;
        let name = reconciled_name(new.name, &mut tags)?;
        let experiment = self.experiment(call, new.experiment, &RUN_WRITE).await?;
        require_active(&experiment)?;
        let id = RunId::new();
        let info = RunInfo {
            id,
            experiment: experiment.no,
            experiment_id: experiment.id,
            name,
            user_id: new.user_id,
            status,
            start_time: new.start_time,
            end_time: None,
            stage: Stage::Active,
            artifact_uri: artifact_uri(&experiment.artifact_location, id),
        };
        Ok(PlannedRun {
            tracking: self.clone(),
            resource: resource(&call.place, info.experiment_id, false),
            project: call.place.id,
            info,
            tags,
            params,
        })
    }
}

impl PlannedRun {
    #[must_use]
    pub fn id(&self) -> RunId {
        self.info.id
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Writes it, in the context that it was planned in.
    pub fn write(&self, tx: &mut Tx<'_>, ctx: &Ctx) -> Result<Made> {
        let info = &self.info;
        require_active_for(tx, self.project, info.experiment_id)?;
        let version = store::insert(tx, info)?;
        let mut learned = self.tracking.write_tags(tx, info, &self.tags)?;
        if !self.params.is_empty() {
            let names = self.params.iter().map(|(name, _)| name.as_str());
            let kind = (info.experiment, KeyKind::Param);
            let (keys, more) = self.tracking.0.keys.number(tx, kind, names)?;
            for (key, (_, value)) in keys.into_iter().zip(&self.params) {
                store::insert_param(tx, info.id, key, value)?;
            }
            learned = learned.and(more);
        }
        let shown = shown(info);
        let change = Change::new(&RUN_WRITE, &self.resource)
            .event("run.created", &shown)
            .after(&shown)
            .detail("run", info.id);
        tx.record(ctx, change)?;
        Ok(Made { learned, version })
    }

    /// It has been committed.
    pub fn is_made(&self, made: Made) {
        self.tracking.0.keys.remember(made.learned);
        let address = Address {
            project: self.project,
            experiment: self.info.experiment,
            experiment_id: self.info.experiment_id,
        };
        self.tracking.0.homes.remember(self.info.id, address);
    }
}
