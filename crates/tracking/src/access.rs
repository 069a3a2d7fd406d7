//! Every id that a request names passes through here: found, of this project, and allowed.

use falaj_base::{Action, Ctx, Error, Resource, Result, code};
use falaj_governance::tenancy::Project;
use falaj_mlflow::Call;

use crate::Tracking;
use crate::experiment::{Experiment, ExperimentId, store as experiments};
use crate::homes::Address;
use crate::run::{RunId, store as runs};

/// Where a run lives, seen and allowed.
#[derive(Clone, Debug)]
pub struct Home {
    pub run: RunId,
    /// The experiment's number in the database.
    pub experiment: i64,
    pub experiment_id: ExperimentId,
    pub resource: Resource,
}

impl Tracking {
    /// The experiment with this id, if the caller may do `action` to it. Not there and not yours
    /// read alike.
    pub async fn experiment(
        &self,
        call: &Call,
        id: ExperimentId,
        action: &'static Action,
    ) -> Result<Experiment> {
        let project = call.place.id;
        let found = self.db().glance(move |tx| experiments::find(tx, project, id)).await?;
        let found = match found {
            None if id == ExperimentId::DEFAULT => Some(self.make_default(call).await?),
            found => found,
        };
        let not_there = || no_experiment(id);
        allowed(&call.ctx, action, &resource(&call.place, id, found.is_none()), not_there).await?;
        found.ok_or_else(not_there)
    }

    /// The home of the run with this id, if the caller may do `action` there: likewise.
    pub async fn home(&self, call: &Call, run: &str, action: &'static Action) -> Result<Home> {
        let not_there = || no_run(run);
        // A text that cannot be an id is the id of nothing, as in MLflow.
        let id = RunId::parse(run).unwrap_or(None);
        let found = match id {
            Some(id) => self.address(id).await?,
            None => None,
        };
        let found = found.filter(|address| address.project == call.place.id);
        let (Some(run), Some(address)) = (id, found) else {
            let absent = Resource::absent("run", run, call.place.scope());
            allowed(&call.ctx, action, &absent, not_there).await?;
            return Err(not_there());
        };
        let resource = resource(&call.place, address.experiment_id, false).shown_as(run);
        allowed(&call.ctx, action, &resource, not_there).await?;
        let Address { experiment, experiment_id, .. } = address;
        Ok(Home { run, experiment, experiment_id, resource })
    }

    /// The numbers in the database of those of the experiments that there are.
    pub async fn experiment_numbers(
        &self,
        call: &Call,
        ids: Vec<ExperimentId>,
    ) -> Result<Vec<i64>> {
        let project = call.place.id;
        self.db()
            .read(move |tx| {
                let number = |id: ExperimentId| experiments::number(tx, project, id).transpose();
                ids.into_iter().filter_map(number).collect()
            })
            .await
    }

    async fn address(&self, run: RunId) -> Result<Option<Address>> {
        if let Some(address) = self.0.homes.get(run) {
            return Ok(Some(address));
        }
        let found = self.db().glance(move |tx| runs::address(tx, run)).await?;
        if let Some(address) = found {
            self.0.homes.remember(run, address);
        }
        Ok(found)
    }
}

/// What everything inside an experiment is authorised on.
#[must_use]
pub fn resource(project: &Project, id: ExperimentId, absent: bool) -> Resource {
    let name = format!("{}/{id}", project.id);
    let resource = if absent {
        Resource::absent("experiment", name, project.scope())
    } else {
        Resource::new("experiment", name, project.scope())
    };
    resource.with(project.attributes()).shown_as(id)
}

/// Asks for leave; a refusal to one who may not even know of it reads as if it were not there.
pub async fn allowed(
    ctx: &Ctx,
    action: &'static Action,
    resource: &Resource,
    not_there: impl Fn() -> Error,
) -> Result<()> {
    ctx.authorize(action, resource)
        .await
        .map_err(|refused| if *refused.code() == code::NOT_FOUND { not_there() } else { refused })
}

pub(crate) fn no_experiment(id: impl std::fmt::Display) -> Error {
    Error::new(&code::NOT_FOUND, format!("No Experiment with id={id} exists"))
}

pub(crate) fn no_run(id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    Error::new(&code::NOT_FOUND, format!("Run with id={id} not found"))
}
