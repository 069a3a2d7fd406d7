//! The verbs on tenants and projects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use falaj_base::{
    Action, Ctx, Error, Name, Page, PageQuery, ProjectId, Resource, Result, Scope, TenantId, code,
};
use falaj_store::db::{Db, Tx};
use falaj_store::record::Change;

use super::known::Known;
use super::project::{NewProject, Project, ProjectPatch};
use super::tenant::{NewTenant, Tenant, TenantPatch};
use super::{
    PROJECT_CREATE, PROJECT_DELETE, PROJECT_READ, PROJECT_UPDATE, TENANT_CREATE, TENANT_DELETE,
    TENANT_READ, TENANT_UPDATE, store,
};
use crate::epoch::Epoch;
use crate::listing::visible;
use crate::residency::{Residency, on_record};
use crate::{authz, identity};

/// The tenants and projects of this platform.
#[derive(Clone, Debug)]
pub struct Tenancy {
    db: Db,
    epoch: Epoch,
    /// The zone of a tenant that names none.
    default_zone: Name,
    known: Arc<Known>,
    leaving: Arc<Mutex<BTreeMap<&'static str, Leaving>>>,
}

/// What a domain does with what it has of a project that is deleted, as part of that. A refusal keeps the
/// project.
pub type Leaving = fn(&mut Tx<'_>, ProjectId) -> Result<()>;

impl Tenancy {
    #[must_use]
    pub fn new(db: Db, epoch: Epoch, default_zone: Name) -> Self {
        Self { db, epoch, default_zone, known: Arc::default(), leaving: Arc::default() }
    }

    /// Lets a domain see to what it has of projects that are deleted.
    pub fn before_deleting(&self, domain: &'static str, leaving: Leaving) {
        let mut all = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(domain, leaving);
    }

    /// The tenant of this name, if the caller may see it. Everything that names a tenant starts
    /// here, so that *not yours* and *not there* are one code path and one text.
    pub async fn tenant(&self, ctx: &Ctx, name: &Name) -> Result<Tenant> {
        let wanted = name.clone();
        let found = self.db.read(move |tx| store::find_tenant(tx, &wanted)).await?;
        let resource = found
            .as_ref()
            .map_or_else(|| Resource::absent("tenant", name, Scope::Platform), Tenant::resource);
        see(ctx, &TENANT_READ, &resource, found).await
    }

    /// What the tenant of this name is to a policy, if the caller may see it: mostly from memory.
    async fn visible(&self, ctx: &Ctx, name: &Name) -> Result<Resource> {
        // Read before the database, as the epoch asks of every cache.
        let epoch = self.epoch.current();
        if let Some(resource) = self.known.get(name, epoch) {
            return see(ctx, &TENANT_READ, &resource, Some(resource.clone())).await;
        }
        let resource = self.tenant(ctx, name).await?.resource();
        self.known.put(name.clone(), epoch, resource.clone());
        Ok(resource)
    }

    /// The project of this name, if the caller may see it: likewise.
    pub async fn project(&self, ctx: &Ctx, tenant: &Name, name: &Name) -> Result<Project> {
        let (of, wanted) = (tenant.clone(), name.clone());
        let found = self.db.read(move |tx| store::find_project(tx, &of, &wanted)).await?;
        let shown = format!("{tenant}/{name}");
        let resource = found.as_ref().map_or_else(
            || Resource::absent("project", &shown, Scope::Platform),
            Project::resource,
        );
        see(ctx, &PROJECT_READ, &resource, found).await
    }

    /// The project with this id, if the caller may see it: likewise.
    pub async fn project_by_id(&self, ctx: &Ctx, id: ProjectId) -> Result<Project> {
        let found = self.db.read(move |tx| store::find_project_by_id(tx, id)).await?;
        let resource = found
            .as_ref()
            .map_or_else(|| Resource::absent("project", id, Scope::Platform), Project::resource);
        see(ctx, &PROJECT_READ, &resource, found).await
    }

    pub async fn create_tenant(&self, ctx: &Ctx, new: NewTenant) -> Result<Tenant> {
        let zone = new.zone.unwrap_or_else(|| self.default_zone.clone());
        let tenant = Tenant {
            id: TenantId::new(),
            name: new.name,
            display_name: new.display_name,
            allowed_zones: with_home(new.allowed_zones.unwrap_or_default(), &zone),
            zone,
            created_at: self.db.now(),
        };
        // It does not exist yet: creating it is an act on the platform.
        let resource = Resource::new("tenant", tenant.id, Scope::Platform)
            .in_zone(tenant.zone.as_str())
            .shown_as(tenant.name.as_str());
        ctx.authorize(&TENANT_CREATE, &resource).await?;
        let (by, about) = (ctx.clone(), resource.clone());
        let outcome = self
            .db
            .write(move |tx| {
                require_zones(tx, &tenant)?;
                store::insert_tenant(tx, &tenant)?;
                let change = Change::new(&TENANT_CREATE, &about)
                    .event("tenant.created", &tenant)
                    .after(&tenant)
                    .reply(201, &tenant);
                tx.record(&by, change)?;
                Ok(tenant)
            })
            .await;
        on_record(&self.db, ctx, &TENANT_CREATE, &resource, outcome).await
    }

    pub async fn update_tenant(&self, ctx: &Ctx, name: Name, patch: TenantPatch) -> Result<Tenant> {
        let resource = self.visible(ctx, &name).await?;
        ctx.authorize(&TENANT_UPDATE, &resource).await?;
        let (by, about) = (ctx.clone(), resource.clone());
        let outcome = self
            .db
            .write(move |tx| {
                // Read again under the lock: two patches of different fields must both stay.
                let old = locked_tenant(tx, &name)?;
                if resource.scope != Scope::Tenant(old.id) {
                    return Err(Error::not_found("tenant", name));
                }
                let mut tenant = old.clone();
                if patch.display_name.is_some() {
                    tenant.display_name = patch.display_name;
                }
                if let Some(zones) = patch.allowed_zones {
                    tenant.allowed_zones = with_home(zones, &tenant.zone);
                }
                let change = Change::new(&TENANT_UPDATE, &about);
                // What stays as it was is no news, but that somebody tried is on record.
                let change = if tenant == old {
                    change.unchanged(&tenant)
                } else {
                    require_zones(tx, &tenant)?;
                    refuse_stranded(tx, &tenant)?;
                    store::update_tenant(tx, &tenant)?;
                    change.before(&old).after(&tenant).event("tenant.updated", &tenant)
                };
                tx.record(&by, change)?;
                Ok(tenant)
            })
            .await;
        on_record(&self.db, ctx, &TENANT_UPDATE, &resource, outcome).await
    }

    /// Deletes a tenant without projects, and its people, roles and policies with it; the database
    /// refuses while a project is left.
    pub async fn delete_tenant(&self, ctx: &Ctx, name: Name) -> Result<()> {
        let tenant = self.tenant(ctx, &name).await?;
        let resource = tenant.resource();
        ctx.authorize(&TENANT_DELETE, &resource).await?;
        let ctx = ctx.clone();
        let moved = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                identity::forget_tenant(tx, tenant.id)?;
                authz::forget_tenant(tx, tenant.id)?;
                store::delete_tenant(tx, tenant.id)
                    .map_err(|error| still_holds(error, "the tenant still has projects"))?;
                let change = Change::new(&TENANT_DELETE, &resource)
                    .event("tenant.deleted", &tenant)
                    .before(&tenant);
                tx.record(&ctx, change)?;
                Ok(moved)
            })
            .await?;
        self.epoch.publish(moved);
        Ok(())
    }

    pub async fn list_tenants(&self, ctx: &Ctx, query: PageQuery) -> Result<Page<Tenant>> {
        let limit = query.limit()?;
        ctx.filtered(&TENANT_READ);
        let ctx = ctx.clone();
        self.db
            .read(move |tx| {
                visible(
                    limit,
                    query.after(),
                    |after, count| store::list_tenants(tx, after, count),
                    |tenant| ctx.allows(&TENANT_READ, &tenant.resource()),
                    |tenant| tenant.name.to_string(),
                )
            })
            .await
    }

    pub async fn create_project(
        &self,
        ctx: &Ctx,
        tenant: Name,
        new: NewProject,
    ) -> Result<Project> {
        let tenant = self.tenant(ctx, &tenant).await?;
        let project = Project {
            id: ProjectId::new(),
            tenant_id: tenant.id,
            tenant: tenant.name.clone(),
            name: new.name,
            display_name: new.display_name,
            zone: new.zone.unwrap_or_else(|| tenant.zone.clone()),
            classification: new.classification,
            purpose: new.purpose,
            tags: new.tags,
            created_at: self.db.now(),
        };
        let resource = Resource::new("project", project.id, Scope::Tenant(tenant.id))
            .with(project.attributes())
            .shown_as(format!("{}/{}", tenant.name, project.name));
        ctx.authorize(&PROJECT_CREATE, &resource).await?;
        let (by, about) = (ctx.clone(), resource.clone());
        let outcome = self
            .db
            .write(move |tx| {
                let tenant = locked_tenant(tx, &tenant.name)?;
                require_allowed(&tenant, &project.zone)?;
                Residency::require(tx, &tenant.zone, &project.zone)?;
                store::insert_project(tx, &project)?;
                let change = Change::new(&PROJECT_CREATE, &about)
                    .event("project.created", &project)
                    .after(&project)
                    .reply(201, &project);
                tx.record(&by, change)?;
                Ok(project)
            })
            .await;
        on_record(&self.db, ctx, &PROJECT_CREATE, &resource, outcome).await
    }

    pub async fn update_project(
        &self,
        ctx: &Ctx,
        tenant: Name,
        name: Name,
        patch: ProjectPatch,
    ) -> Result<Project> {
        let resource = self.project(ctx, &tenant, &name).await?.resource();
        ctx.authorize(&PROJECT_UPDATE, &resource).await?;
        let ctx = ctx.clone();
        let (project, moved) = self
            .db
            .write(move |tx| {
                // Copies of the project are kept by those who look it up with every request.
                let moved = Epoch::bump(tx)?;
                locked_tenant(tx, &tenant)?;
                let old = store::find_project(tx, &tenant, &name)?
                    .ok_or_else(|| Error::not_found("project", resource.shown()))?;
                let project = Project {
                    display_name: patch.display_name.or_else(|| old.display_name.clone()),
                    classification: patch.classification.or_else(|| old.classification.clone()),
                    purpose: patch.purpose.or_else(|| old.purpose.clone()),
                    tags: patch.tags.unwrap_or_else(|| old.tags.clone()),
                    ..old.clone()
                };
                let mut change =
                    Change::new(&PROJECT_UPDATE, &resource).before(&old).after(&project);
                if project != old {
                    store::update_project(tx, &project)?;
                    change = change.event("project.updated", &project);
                }
                tx.record(&ctx, change)?;
                Ok((project, moved))
            })
            .await?;
        self.epoch.publish(moved);
        Ok(project)
    }

    pub async fn delete_project(&self, ctx: &Ctx, tenant: Name, name: Name) -> Result<()> {
        let project = self.project(ctx, &tenant, &name).await?;
        let resource = project.resource();
        ctx.authorize(&PROJECT_DELETE, &resource).await?;
        let ctx = ctx.clone();
        let leaving: Vec<Leaving> = {
            let all = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
            all.values().copied().collect()
        };
        let moved = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                identity::forget_project(tx, project.id)?;
                authz::forget_project(tx, project.id)?;
                leaving.iter().try_for_each(|leave| leave(tx, project.id))?;
                store::delete_project(tx, &project)
                    .map_err(|error| still_holds(error, "the project still holds something: objects, runs, models, traces, endpoints or features"))?;
                let change = Change::new(&PROJECT_DELETE, &resource)
                    .event("project.deleted", &project)
                    .before(&project);
                tx.record(&ctx, change)?;
                Ok(moved)
            })
            .await?;
        self.epoch.publish(moved);
        Ok(())
    }

    pub async fn list_projects(
        &self,
        ctx: &Ctx,
        tenant: Name,
        query: PageQuery,
    ) -> Result<Page<Project>> {
        let limit = query.limit()?;
        let tenant = self.tenant(ctx, &tenant).await?;
        ctx.filtered(&PROJECT_READ);
        let ctx = ctx.clone();
        self.db
            .read(move |tx| {
                visible(
                    limit,
                    query.after(),
                    |after, count| store::list_projects(tx, tenant.id, after, count),
                    |project| ctx.allows(&PROJECT_READ, &project.resource()),
                    |project| project.name.to_string(),
                )
            })
            .await
    }

    /// Makes the tenant and project of a fresh installation, unless there is any tenant.
    pub async fn ensure_default(&self) -> Result<()> {
        let ctx = Ctx::system("first-start");
        let any = self.db.read(|tx| store::list_tenants(tx, "", 1)).await?;
        if !any.is_empty() {
            return Ok(());
        }
        let name = Name::new("default")?;
        let tenant =
            NewTenant { name: name.clone(), display_name: None, zone: None, allowed_zones: None };
        self.create_tenant(&ctx, tenant).await?;
        let project = NewProject {
            name: name.clone(),
            display_name: None,
            zone: None,
            classification: None,
            purpose: None,
            tags: BTreeMap::new(),
        };
        self.create_project(&ctx, name, project).await.map(drop)
    }
}

/// Gives `found` to a caller who may see it; to anyone else it does not exist.
async fn see<T>(
    ctx: &Ctx,
    action: &'static Action,
    resource: &Resource,
    found: Option<T>,
) -> Result<T> {
    let not_there = || Error::not_found(resource.kind, resource.shown());
    match ctx.authorize(action, resource).await {
        Ok(()) => found.ok_or_else(not_there),
        Err(error) if matches!(error.code().id, "not-found" | "forbidden") => Err(not_there()),
        Err(error) => Err(error),
    }
}

/// The tenant as it is now, with every other change of it and of its projects kept waiting.
fn locked_tenant(tx: &mut Tx<'_>, name: &Name) -> Result<Tenant> {
    tx.lock(&format!("tenant/{name}"))?;
    store::find_tenant(tx, name)?.ok_or_else(|| Error::not_found("tenant", name))
}

/// A tenant's own zone is always among those it allows.
fn with_home(mut zones: Vec<Name>, home: &Name) -> Vec<Name> {
    zones.push(home.clone());
    zones.sort();
    zones.dedup();
    zones
}

/// Every allowed zone must be one the tenant's data may lawfully be placed in.
fn require_zones(tx: &mut Tx<'_>, tenant: &Tenant) -> Result<()> {
    for zone in &tenant.allowed_zones {
        Residency::require(tx, &tenant.zone, zone)?;
    }
    Ok(())
}

fn require_allowed(tenant: &Tenant, zone: &Name) -> Result<()> {
    if tenant.allowed_zones.contains(zone) {
        return Ok(());
    }
    let allowed: Vec<&str> = tenant.allowed_zones.iter().map(Name::as_str).collect();
    Err(Error::new(
        &code::RESIDENCY,
        format!(
            "rule tenant-zones: tenant `{}` allows the zones {}; not `{zone}`",
            tenant.name,
            allowed.join(", ")
        ),
    )
    .at("zone"))
}

/// A zone cannot be taken from a tenant while one of its projects lies there.
fn refuse_stranded(tx: &mut Tx<'_>, tenant: &Tenant) -> Result<()> {
    let mut after = String::new();
    loop {
        let projects = store::list_projects(tx, tenant.id, &after, 1000)?;
        let Some(last) = projects.last() else { return Ok(()) };
        after = last.name.to_string();
        let stranded = projects.iter().find(|p| !tenant.allowed_zones.contains(&p.zone));
        if let Some(project) = stranded {
            return Err(Error::new(
                &code::IN_USE,
                format!("project `{}` lies in zone `{}`", project.name, project.zone),
            )
            .at("allowed_zones"));
        }
    }
}

fn still_holds(error: Error, text: &str) -> Error {
    if error.code() == &code::IN_USE { Error::new(&code::IN_USE, text) } else { error }
}
