//! Who else refers to the files of runs and models: what they refer to stays.

use std::collections::HashMap;

use falaj_base::{Error, ProjectId, Result, code};
use falaj_store::db::Tx;

use crate::access::no_run;
use crate::artifact::{ArtifactPath, Named};
use crate::experiment::ExperimentId;
use crate::logged_model::{ModelId, no_model, store as models};
use crate::run::{RunId, store as runs};

/// Another domain that refers to files kept here. Asked inside the transaction that purges.
pub trait Keeper: Send + Sync {
    /// Everything it refers to in a project.
    fn kept(&self, tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<Kept>>;
}

/// One reference to files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The folder or file, as a path among the project's artifacts.
    pub files: String,
    /// What refers to it, for people: `model thing, version 3`.
    pub by: String,
}

/// Lets a reference to files and a purge of them not pass each other by: called by both, inside
/// their transactions. For one who is about to refer to `files`, it also tells whether the run or
/// model they belong to is still there.
pub fn pin(tx: &mut Tx<'_>, project: ProjectId, files: Option<&str>) -> Result<()> {
    tx.lock(&format!("kept-files/{project}"))?;
    let Some(files) = files else { return Ok(()) };
    let path = ArtifactPath::new(files)?;
    match path.names() {
        Named::Run { run, .. } => {
            let there = match RunId::parse(run)? {
                Some(id) => runs::address(tx, id)?.is_some_and(|home| home.project == project),
                None => false,
            };
            if there { Ok(()) } else { Err(no_run(run)) }
        }
        Named::Model { model, .. } => {
            let there = match ModelId::parse(model) {
                Some(id) => models::address(tx, id)?.is_some_and(|(home, _, _)| home == project),
                None => false,
            };
            if there { Ok(()) } else { Err(no_model(model)) }
        }
        Named::Experiment(_) | Named::Project => Ok(()),
    }
}

/// What of a project is referred to, and by what.
#[derive(Debug, Default)]
pub(super) struct References {
    runs: HashMap<RunId, String>,
    models: HashMap<ModelId, String>,
    experiments: HashMap<ExperimentId, String>,
}

impl References {
    /// As they are until the transaction ends.
    pub(super) fn read(
        tx: &mut Tx<'_>,
        project: ProjectId,
        keeper: Option<&dyn Keeper>,
    ) -> Result<Self> {
        pin(tx, project, None)?;
        Self::seen(tx, project, keeper)
    }

    /// As they are at this moment.
    pub(super) fn seen(
        tx: &mut Tx<'_>,
        project: ProjectId,
        keeper: Option<&dyn Keeper>,
    ) -> Result<Self> {
        let mut all = Self::default();
        let Some(keeper) = keeper else { return Ok(all) };
        for Kept { files, by } in keeper.kept(tx, project)? {
            let Ok(path) = ArtifactPath::new(files) else { continue };
            match path.names() {
                Named::Run { run, .. } => {
                    let Some(run) = RunId::parse(run)? else { continue };
                    if let Some(home) = runs::address(tx, run)? {
                        all.experiments.insert(home.experiment_id, by.clone());
                    }
                    all.runs.insert(run, by);
                }
                Named::Model { model, .. } => {
                    let Some(model) = ModelId::parse(model) else { continue };
                    if let Some((_, _, experiment)) = models::address(tx, model)? {
                        all.experiments.insert(experiment, by.clone());
                    }
                    all.models.insert(model, by);
                }
                Named::Experiment(id) => drop(all.experiments.insert(id, by)),
                Named::Project => {}
            }
        }
        Ok(all)
    }

    pub(super) fn check_run(&self, run: RunId) -> Result<()> {
        refuse(self.runs.get(&run), "run", &run.to_string())
    }

    pub(super) fn check_model(&self, model: ModelId) -> Result<()> {
        refuse(self.models.get(&model), "logged model", &model.to_string())
    }

    pub(super) fn check_experiment(&self, id: ExperimentId) -> Result<()> {
        refuse(self.experiments.get(&id), "experiment", &id.to_string())
    }
}

fn refuse(by: Option<&String>, what: &str, id: &str) -> Result<()> {
    let Some(by) = by else { return Ok(()) };
    let text = format!("files of {what} {id} are those of {by}: delete that first");
    Err(Error::new(&code::IN_USE, text))
}
