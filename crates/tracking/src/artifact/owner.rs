//! What a path belongs to, found and allowed: a run, a logged model, an experiment or the project.

use falaj_base::{Action, Error, ProjectId, Resource, Result, code};
use falaj_mlflow::{Call, Place};
use falaj_store::db::Tx;

use super::path::{ArtifactPath, Named};
use super::store;
use crate::access::{no_experiment, no_run, resource};
use crate::experiment::{ExperimentId, Stage, store as experiments};
use crate::logged_model::{ModelId, no_model};
use crate::run::{RunId, store as runs};
use crate::{Home, Tracking};

/// What clients call the artifacts that this server keeps.
const SCHEME: &str = "mlflow-artifacts:";
/// The same, as an address of our own.
const ADDRESS: &str = "/api/2.0/mlflow-artifacts/artifacts/";

/// Who a path belongs to, seen and allowed.
#[derive(Clone, Debug)]
pub struct Owner {
    /// What was authorised, and what changes are recorded on.
    pub resource: Resource,
    pub experiment: Option<ExperimentId>,
    pub run: Option<RunId>,
    pub model: Option<String>,
    /// What it was authorised for.
    pub(super) action: &'static Action,
    /// Why nothing may be written there.
    closed: Option<String>,
    /// Whether what is in the bin may be written to all the same.
    in_bin_too: bool,
}

impl Owner {
    /// Whether the path lies inside one run or model, and so belongs to it alone.
    pub(super) fn is_one(&self) -> bool {
        self.run.is_some() || self.model.is_some()
    }

    /// Lets what is in the bin be written to: it comes from elsewhere and was deleted there.
    pub(crate) fn even_in_bin(mut self) -> Self {
        self.closed = None;
        self.in_bin_too = true;
        self
    }

    /// Refuses to write to what is in the bin.
    pub(super) fn check_open(&self) -> Result<()> {
        self.closed.as_ref().map_or(Ok(()), |why| Err(Error::new(&code::INVALID_INPUT, why)))
    }

    /// The same as the transaction sees it, which may be later. From here to its end nobody else
    /// writes to the same run or model, and none of what it lies in goes away.
    pub(super) fn check_still_open(&self, tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
        if let Some(id) = self.experiment {
            let stage = experiments::stage_for_adding(tx, project, id)?;
            stage.ok_or_else(|| no_experiment(id))?;
        }
        match (&self.run, &self.model) {
            (Some(run), _) => lock_run(tx, project, *run)?,
            (None, Some(model)) => lock_model(tx, project, model)?,
            // It could be a folder above runs.
            (None, None) => tx.lock(&format!("artifact/{project}"))?,
        }
        if let Some(model) = &self.model {
            let found = match ModelId::parse(model) {
                Some(id) => store::model_home(tx, id)?,
                None => None,
            };
            let (_, stage) = found.ok_or_else(|| no_model(model))?;
            if stage == Stage::Deleted && !self.in_bin_too {
                let why = format!("The model {model} is deleted.");
                return Err(Error::new(&code::INVALID_INPUT, why));
            }
        }
        let Some(run) = self.run else { return Ok(()) };
        let info = runs::find(tx, run)?.ok_or_else(|| no_run(&run.to_string()))?;
        match in_bin(run, info.stage).filter(|_| !self.in_bin_too) {
            Some(why) => Err(Error::new(&code::INVALID_INPUT, why)),
            None => Ok(()),
        }
    }
}

impl Tracking {
    /// The owner of a path, if the caller may do `action` there. A path that names a run which is
    /// not there, or not there where the path says, reads like any run that does not exist.
    pub async fn artifact_owner(
        &self,
        call: &Call,
        path: &ArtifactPath,
        action: &'static Action,
    ) -> Result<Owner> {
        match path.names() {
            Named::Run { run, root } => self.run_as_owner(call, run, root, action).await,
            Named::Model { model, root } => self.model_as_owner(call, model, root, action).await,
            Named::Experiment(id) => self.experiment_as_owner(call, id, action).await,
            Named::Project => project_as_owner(call, path.as_str(), action).await,
        }
    }

    async fn run_as_owner(
        &self,
        call: &Call,
        run: &str,
        root: &str,
        action: &'static Action,
    ) -> Result<Owner> {
        let Home { run: id, experiment_id, resource, .. } = self.home(call, run, action).await?;
        let info = self.db().read(move |tx| runs::find(tx, id)).await?;
        let info = info.filter(|info| proxied_path(&info.artifact_uri) == Some(root));
        let info = info.ok_or_else(|| no_run(run))?;
        Ok(Owner {
            resource,
            experiment: Some(experiment_id),
            run: Some(id),
            model: None,
            action,
            closed: in_bin(id, info.stage),
            in_bin_too: false,
        })
    }

    async fn model_as_owner(
        &self,
        call: &Call,
        model: &str,
        root: &str,
        action: &'static Action,
    ) -> Result<Owner> {
        let home = self.logged_model_home(call, model, action).await?;
        let found = self.db().read(move |tx| store::model_home(tx, home.model)).await?;
        let found = found.filter(|(location, _)| proxied_path(location) == Some(root));
        let (_, stage) = found.ok_or_else(|| no_model(model))?;
        Ok(Owner {
            resource: home.resource,
            experiment: Some(home.experiment_id),
            run: None,
            model: Some(model.to_owned()),
            action,
            closed: (stage == Stage::Deleted).then(|| format!("The model {model} is deleted.")),
            in_bin_too: false,
        })
    }

    async fn experiment_as_owner(
        &self,
        call: &Call,
        id: ExperimentId,
        action: &'static Action,
    ) -> Result<Owner> {
        let experiment = self.experiment(call, id, action).await?;
        let closed = (experiment.stage == Stage::Deleted).then(|| {
            format!("The experiment {id} must be in the 'active' state. Current state is deleted.")
        });
        let resource = resource(&call.place, id, false);
        Ok(Owner {
            resource,
            experiment: Some(id),
            run: None,
            model: None,
            action,
            closed,
            in_bin_too: false,
        })
    }
}

/// What lies outside every experiment is allowed by the project, path by path.
pub(super) async fn project_as_owner(
    call: &Call,
    path: &str,
    action: &'static Action,
) -> Result<Owner> {
    let resource = outside(&call.place, path);
    call.ctx.authorize(action, &resource).await?;
    Ok(Owner {
        resource,
        experiment: None,
        run: None,
        model: None,
        action,
        closed: None,
        in_bin_too: false,
    })
}

/// What a path outside every experiment is authorised on.
fn outside(place: &Place, path: &str) -> Resource {
    Resource::new("artifact", format!("{}/{path}", place.id), place.scope())
        .with(place.attributes())
        .shown_as(path)
}

/// Lets one transaction at a time write to the files of a run.
pub(crate) fn lock_run(tx: &mut Tx<'_>, project: ProjectId, run: RunId) -> Result<()> {
    tx.lock_shared(&format!("artifact/{project}"))?;
    tx.lock(&format!("artifact/{project}/{run}"))
}

/// The same for a logged model.
pub(crate) fn lock_model(tx: &mut Tx<'_>, project: ProjectId, model: &str) -> Result<()> {
    tx.lock_shared(&format!("artifact/{project}"))?;
    tx.lock(&format!("artifact/{project}/{model}"))
}

fn in_bin(run: RunId, stage: Stage) -> Option<String> {
    let text = || format!("The run {run} must be in the 'active' state. Current state is deleted.");
    (stage == Stage::Deleted).then(text)
}

/// The path that a location means here; none if the location is somewhere else.
#[must_use]
pub fn proxied_path(location: &str) -> Option<&str> {
    let path = match location.strip_prefix(SCHEME) {
        Some(rest) => match rest.strip_prefix("//") {
            Some(named) => named.split_once('/').map_or("", |(_, path)| path),
            None => rest,
        },
        None if location.starts_with("http://") || location.starts_with("https://") => {
            location.split_once(ADDRESS)?.1
        }
        None => return None,
    };
    Some(path.trim_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_that_are_ours() {
        for (location, path) in [
            ("mlflow-artifacts:/1/r/artifacts", Some("1/r/artifacts")),
            ("mlflow-artifacts:1/r/artifacts/", Some("1/r/artifacts")),
            ("mlflow-artifacts://host:5000/1/r", Some("1/r")),
            ("mlflow-artifacts:", Some("")),
            ("mlflow-artifacts://host", Some("")),
            ("https://h/t/a/b/api/2.0/mlflow-artifacts/artifacts/1/r", Some("1/r")),
            ("https://h/other/1/r", None),
            ("s3://bucket/1", None),
            ("file:///tmp/x", None),
            ("/tmp/x", None),
        ] {
            assert_eq!(proxied_path(location), path, "{location}");
        }
    }
}
