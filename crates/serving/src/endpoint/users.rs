//! A version that an endpoint runs is not deleted, and one that is deleted is not run.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_registry::in_use::{Users, hold};
use falaj_registry::model::RegisteredId;
use falaj_store::db::Tx;

use super::endpoint::Running;
use super::store;

/// The endpoints of all projects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints;

impl Users for Endpoints {
    fn user_of(
        &self,
        tx: &mut Tx<'_>,
        project: ProjectId,
        model: RegisteredId,
        version: Option<i64>,
    ) -> Result<Option<String>> {
        let endpoints = store::list(tx, project, "", usize::MAX)?;
        let runs = endpoints.iter().find(|endpoint| {
            endpoint.running.iter().any(|running| {
                running.model == model && version.is_none_or(|version| version == running.version)
            })
        });
        Ok(runs.map(|endpoint| format!("the endpoint {}", endpoint.name)))
    }
}

/// Refuses to begin to run a version that was deleted since it was proven; one that is there stays
/// until this transaction has ended.
pub(super) fn hold_new(tx: &mut Tx<'_>, known: &[Running], running: &[Running]) -> Result<()> {
    let of = |running: &Running| (running.model, running.version);
    let here = running.iter().filter(|running| running.remote.is_none());
    let mut new: Vec<_> =
        here.map(of).filter(|new| !known.iter().any(|known| of(known) == *new)).collect();
    new.sort_unstable();
    new.dedup();
    for (model, version) in new {
        if !hold(tx, model, version)? {
            let text = format!("version {version} was deleted while it was being deployed");
            return Err(Error::new(&code::CHANGED, text).at("version"));
        }
    }
    Ok(())
}
