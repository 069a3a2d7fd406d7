//! Which project a request is about: the one in its path, else the one in its header, else the
//! one its token is bound to, else `default/default`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use falaj_base::{Ctx, Error, Name, ProjectId, Resource, Result, Scope, code};
use falaj_governance::epoch::Epoch;
use falaj_governance::tenancy::{PROJECT_READ, Project, Tenancy};
use http::request::Parts;

use crate::edge::PathPlace;
use crate::routes::Call;

/// The header that names a project as `tenant/project`.
pub const HEADER: &str = "x-falaj-project";

/// How many projects are remembered.
const REMEMBERED: usize = 10_000;

/// A project that the caller may see.
#[derive(Clone, Debug)]
pub struct Place(Arc<Known>);

#[derive(Debug)]
struct Known {
    project: Project,
    resource: Resource,
    /// The epoch it was read under.
    epoch: u64,
}

impl std::ops::Deref for Place {
    type Target = Project;
    fn deref(&self) -> &Project {
        &self.0.project
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    Named(Name, Name),
    Id(ProjectId),
}

/// Finds places, and remembers them until identity or tenancy changes.
#[derive(Clone, Debug)]
pub struct Places {
    tenancy: Tenancy,
    epoch: Epoch,
    known: Arc<RwLock<HashMap<Wanted, Place>>>,
}

impl Places {
    #[must_use]
    pub fn new(tenancy: Tenancy, epoch: Epoch) -> Self {
        Self { tenancy, epoch, known: Arc::default() }
    }

    /// The place this request is about.
    pub async fn of(&self, ctx: &Ctx, request: &Parts) -> Result<Place> {
        self.find(ctx, wanted(ctx, request)?).await
    }

    /// The place with these names.
    pub async fn named(&self, ctx: &Ctx, tenant: &Name, project: &Name) -> Result<Place> {
        self.find(ctx, Wanted::Named(tenant.clone(), project.clone())).await
    }

    /// A request about the place with these names, if the caller may see it.
    pub async fn call(&self, ctx: &Ctx, tenant: &Name, project: &Name) -> Result<Call> {
        let place = self.named(ctx, tenant, project).await?;
        Ok(Call { ctx: ctx.clone(), place, connection: None })
    }

    /// Grows with every change of identity, tenancy or rights.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.current()
    }

    async fn find(&self, ctx: &Ctx, wanted: Wanted) -> Result<Place> {
        let epoch = self.epoch.current();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&wanted).cloned();
        if let Some(place) = known.filter(|place| place.0.epoch == epoch) {
            ctx.authorize(&PROJECT_READ, &place.0.resource).await?;
            return Ok(place);
        }
        // Apart, so that the usual way carries no room for the long one.
        Box::pin(self.look_up(ctx, wanted, epoch)).await
    }

    async fn look_up(&self, ctx: &Ctx, wanted: Wanted, epoch: u64) -> Result<Place> {
        let project = match &wanted {
            Wanted::Named(tenant, project) => self.tenancy.project(ctx, tenant, project).await?,
            Wanted::Id(id) => self.tenancy.project_by_id(ctx, *id).await?,
        };
        let place = Place(Arc::new(Known { resource: project.resource(), project, epoch }));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(wanted, place.clone());
        Ok(place)
    }
}

fn wanted(ctx: &Ctx, request: &Parts) -> Result<Wanted> {
    if let Some(place) = request.extensions.get::<PathPlace>() {
        return Ok(Wanted::Named(place.tenant.clone(), place.project.clone()));
    }
    if let Some(value) = request.headers.get(HEADER) {
        let text = value.to_str().unwrap_or_default();
        let named = text.split_once('/').and_then(|(tenant, project)| {
            Some(Wanted::Named(Name::new(tenant).ok()?, Name::new(project).ok()?))
        });
        return named.ok_or_else(|| {
            let text = format!("the header {HEADER} must be `tenant/project`");
            Error::new(&code::INVALID_INPUT, text).at(HEADER)
        });
    }
    let bound = ctx.principal.token.as_ref().map(|token| token.scope);
    if let Some(Scope::Project(_, project)) = bound {
        return Ok(Wanted::Id(project));
    }
    let default = Name::new("default")?;
    Ok(Wanted::Named(default.clone(), default))
}
