//! Finding endpoints without asking the database each time.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use falaj_base::{Action, Ctx, Error, ProjectId, Result};
use falaj_governance::tenancy::Project;

use super::served::Served;
use crate::Serving;
use crate::endpoint::{Endpoint, resource, store};

/// How many endpoints are remembered.
const REMEMBERED: usize = 10_000;

/// An endpoint, and the number under which it was read.
type Known = (u64, Arc<Served>);

/// By project and by name.
#[derive(Debug, Default)]
struct Endpoints {
    projects: HashMap<ProjectId, HashMap<String, Known>>,
    count: usize,
}

/// The endpoints that were asked for, with the number that tells whether any changed since.
#[derive(Debug, Default)]
pub(crate) struct Live {
    known: RwLock<Endpoints>,
}

impl Live {
    fn get(&self, project: ProjectId, name: &str, epoch: u64) -> Option<Arc<Served>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (read, served) = known.projects.get(&project)?.get(name)?;
        (*read == epoch).then(|| served.clone())
    }

    /// Every endpoint that was asked for, with its project.
    pub(crate) fn all(&self) -> Vec<(ProjectId, Arc<Served>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let all = known.projects.iter().flat_map(|(project, endpoints)| {
            endpoints.values().map(move |(_, served)| (*project, served.clone()))
        });
        all.collect()
    }

    fn put(&self, project: ProjectId, served: Arc<Served>, epoch: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.count >= REMEMBERED {
            *known = Endpoints::default();
        }
        let endpoints = known.projects.entry(project).or_default();
        let fresh = endpoints.insert(served.name.clone(), (epoch, served)).is_none();
        known.count += usize::from(fresh);
    }
}

impl Serving {
    /// An endpoint that is there and that the caller may do this to.
    pub(crate) async fn served(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        action: &'static Action,
    ) -> Result<Arc<Served>> {
        // Read before the database is: what a later change makes stale is then filed as stale.
        let epoch = self.epoch().current();
        if let Some(served) = self.live().get(project.id, name, epoch) {
            ctx.authorize(action, &served.resource).await?;
            return Ok(served);
        }
        // Apart, so that the usual way carries no room for the long one.
        Box::pin(self.look_up(ctx, project, name, action, epoch)).await
    }

    async fn look_up(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        action: &'static Action,
        epoch: u64,
    ) -> Result<Arc<Served>> {
        let (id, wanted) = (project.id, name.to_owned());
        let found = self.db().read(move |tx| store::find(tx, id, &wanted)).await?;
        ctx.authorize(action, &resource(project, name, found.is_none())).await?;
        let found = found.ok_or_else(|| Error::not_found("endpoint", name))?;
        let watched = self.watch().of(project.id, &found);
        let served = Arc::new(Served::new(project, &found, watched)?);
        self.live().put(project.id, served.clone(), epoch);
        Ok(served)
    }

    /// Loads what an endpoint runs.
    pub(crate) async fn warm(&self, project: &Project, endpoint: &Endpoint) -> Result<()> {
        for arm in endpoint.arms(project)? {
            self.fleet().model(&arm.key).await?;
        }
        Ok(())
    }

    /// Gives back the memory of what an endpoint ran; another that runs the same loads it again.
    pub(crate) async fn unload(&self, project: &Project, endpoint: &Endpoint) -> Result<()> {
        for arm in endpoint.arms(project)? {
            self.fleet().unload(&arm.key).await;
        }
        Ok(())
    }
}
