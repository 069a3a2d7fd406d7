//! A version that an endpoint runs is not deleted.

use falaj_base::{ProjectId, Result};
use falaj_registry::in_use::Users;
use falaj_registry::model::RegisteredId;
use falaj_store::db::Tx;

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
