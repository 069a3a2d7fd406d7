//! The verbs on roles. Those on policies are in `policies.rs`.
//!
//! Must hold: every write moves the epoch first, in its own transaction, and publishes it after
//! the commit.

use std::sync::Arc;

use falaj_base::{
    Action, BindingId, Ctx, Error, Name, Page, PageQuery, PrincipalId, Resource, Result, Role,
    Scope, TenantId, code,
};
use falaj_store::db::{Db, Tx};
use falaj_store::record::{AuditEntry, Change};
use serde_json::json;

use super::actions::{
    GROUP_ROLE_CREATE, GROUP_ROLE_DELETE, GROUP_ROLE_READ, ROLE_BINDING_CREATE,
    ROLE_BINDING_DELETE, ROLE_BINDING_READ,
};
use super::bindings::{GroupRole, RoleBinding, Subject, may_be_bound, may_deal_in};
use super::config::AuthzConfig;
use super::gate::{CedarGate, knows};
use super::place::Place;
use super::store;
use crate::epoch::Epoch;
use crate::listing::visible;

/// Roles and policies.
#[derive(Debug)]
pub struct Authz {
    pub(super) db: Db,
    pub(super) epoch: Epoch,
    pub(super) gate: Arc<CedarGate>,
    pub(super) config: AuthzConfig,
    pub(super) matrix: std::sync::OnceLock<Vec<super::matrix::MatrixRow>>,
}

/// A role to be given.
#[derive(Clone, Debug)]
pub struct NewBinding {
    /// A name or an id.
    pub principal: String,
    pub role: Role,
    pub tenant: Option<Name>,
    pub project: Option<Name>,
}

/// A role to be given to a group.
#[derive(Clone, Debug)]
pub struct NewGroupRole {
    pub issuer: String,
    pub group: String,
    pub role: Role,
    pub project: Option<Name>,
}

impl Authz {
    #[must_use]
    pub fn new(db: Db, epoch: Epoch, gate: Arc<CedarGate>, config: AuthzConfig) -> Self {
        Self { db, epoch, gate, config, matrix: std::sync::OnceLock::new() }
    }

    pub async fn bind(&self, ctx: &Ctx, new: NewBinding) -> Result<RoleBinding> {
        let (given, role) = (new.principal.clone(), new.role);
        let (place, subject) = self
            .db
            .read(move |tx| {
                let subject = store::find_subject(tx, &new.principal)?;
                Ok((Place::find(tx, new.tenant, new.project)?, subject))
            })
            .await?;
        let id = BindingId::new();
        let resource = place.authorize(ctx, &ROLE_BINDING_CREATE, "role-binding", id).await?;
        let scope = resource.scope;
        let subject = subject
            .filter(|subject| may_know(ctx, subject, &scope))
            .ok_or_else(|| Error::not_found("principal", &given))?;
        may_be_bound(&subject, &scope)?;
        self.insist(
            ctx,
            &ROLE_BINDING_CREATE,
            &resource,
            may_deal_in(&ctx.principal, &scope, role),
        )
        .await?;
        let binding = RoleBinding {
            id,
            principal: subject.id,
            principal_name: subject.name,
            role,
            tenant: None,
            project: None,
            created_at: self.db.now(),
            created_by: ctx.principal.id,
            scope,
        };
        let (ctx, limit) = (ctx.clone(), self.config.bindings_per_tenant);
        let (moved, binding) = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                room(tx, scope.tenant(), limit)?;
                store::insert_binding(tx, &binding).map_err(|error| {
                    held_already(error, format_args!("{} on {scope}", binding.role))
                })?;
                let binding = store::find_binding(tx, id)?
                    .ok_or_else(|| Error::internal("a new binding is not there"))?;
                let change = Change::new(&ROLE_BINDING_CREATE, &resource)
                    .event("role-binding.created", &json!({ "id": id }))
                    .after(&binding)
                    .detail("principal", binding.principal)
                    .detail("role", binding.role)
                    .reply(201, &binding);
                tx.record(&ctx, change)?;
                Ok((moved, binding))
            })
            .await?;
        self.epoch.publish(moved);
        Ok(binding)
    }

    pub async fn unbind(&self, ctx: &Ctx, id: BindingId) -> Result<()> {
        let found = self.db.read(move |tx| store::find_binding(tx, id)).await?;
        let resource = match &found {
            Some(binding) => Resource::new("role-binding", id, binding.scope),
            None => Resource::absent("role-binding", id, Scope::Platform),
        };
        ctx.authorize(&ROLE_BINDING_DELETE, &resource).await?;
        let binding = found.ok_or_else(|| Error::not_found("role-binding", id))?;
        let dealt = may_deal_in(&ctx.principal, &binding.scope, binding.role);
        self.insist(ctx, &ROLE_BINDING_DELETE, &resource, dealt).await?;
        let ctx = ctx.clone();
        let moved = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                if store::delete_binding(tx, id)? == 0 {
                    return Err(Error::not_found("role-binding", id));
                }
                let admin = binding.scope == Scope::Platform && binding.role == Role::Admin;
                if admin && store::other_platform_admins(tx, binding.principal)? == 0 {
                    let text = "the last platform admin stays; give the role to another first";
                    return Err(Error::new(&code::CONFLICT, text));
                }
                let change = Change::new(&ROLE_BINDING_DELETE, &resource)
                    .event("role-binding.deleted", &json!({ "id": id }))
                    .before(&binding)
                    .detail("principal", binding.principal)
                    .detail("role", binding.role);
                tx.record(&ctx, change)?;
                Ok(moved)
            })
            .await?;
        self.epoch.publish(moved);
        Ok(())
    }

    /// The bindings the caller may see: all, or those of one tenant, or those of one principal.
    pub async fn bindings(
        &self,
        ctx: &Ctx,
        tenant: Option<Name>,
        principal: Option<PrincipalId>,
        page: PageQuery,
    ) -> Result<Page<RoleBinding>> {
        let limit = page.limit()?;
        let named = tenant.is_some();
        let place = self.db.read(move |tx| Place::find(tx, tenant, None)).await?;
        let scope = place.to_list(ctx, &ROLE_BINDING_READ, "role-binding").await?;
        // A principal of a tenant sees nothing outside it, so the rest need not be looked at.
        let within = scope.tenant().or(ctx.principal.home);
        let caller = ctx.clone();
        let seen = self
            .db
            .read(move |tx| {
                visible(
                    limit,
                    page.after(),
                    |after, count| store::list_bindings(tx, within, principal, after, count),
                    |b| {
                        let resource = Resource::new("role-binding", b.id, b.scope);
                        caller.allows(&ROLE_BINDING_READ, &resource)
                    },
                    |b| b.id.to_string(),
                )
            })
            .await?;
        if seen.items.is_empty() && named {
            place.nothing_visible(ctx, &ROLE_BINDING_READ, "role-binding").await?;
        }
        ctx.filtered(&ROLE_BINDING_READ);
        Ok(seen)
    }

    pub async fn bind_group(
        &self,
        ctx: &Ctx,
        tenant: Name,
        new: NewGroupRole,
    ) -> Result<GroupRole> {
        let project = new.project;
        let place = self.db.read(move |tx| Place::find(tx, Some(tenant), project)).await?;
        let id = BindingId::new();
        let resource = place.authorize(ctx, &GROUP_ROLE_CREATE, "group-role", id).await?;
        let (scope, role) = (resource.scope, new.role);
        self.insist(ctx, &GROUP_ROLE_CREATE, &resource, may_deal_in(&ctx.principal, &scope, role))
            .await?;
        let tenant = scope.tenant().ok_or_else(|| Error::internal("a place outside tenants"))?;
        let group_role = GroupRole {
            id,
            issuer: new.issuer,
            group: new.group,
            role,
            tenant: String::new(),
            project: None,
            created_at: self.db.now(),
            created_by: ctx.principal.id,
            scope,
        };
        let (ctx, limit) = (ctx.clone(), self.config.bindings_per_tenant);
        let (moved, group_role) = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                room(tx, Some(tenant), limit)?;
                store::insert_group_role(tx, tenant, &group_role).map_err(|error| {
                    held_already(error, format_args!("{} on {scope}", group_role.role))
                })?;
                let group_role = store::find_group_role(tx, tenant, id)?
                    .ok_or_else(|| Error::internal("a new group role is not there"))?;
                let change = Change::new(&GROUP_ROLE_CREATE, &resource)
                    .event("group-role.created", &json!({ "id": id }))
                    .after(&group_role)
                    .detail("group", &group_role.group)
                    .detail("role", role)
                    .reply(201, &group_role);
                tx.record(&ctx, change)?;
                Ok((moved, group_role))
            })
            .await?;
        self.epoch.publish(moved);
        Ok(group_role)
    }

    pub async fn unbind_group(&self, ctx: &Ctx, tenant: Name, id: BindingId) -> Result<()> {
        let (place, found) = self
            .db
            .read(move |tx| {
                let place = Place::find(tx, Some(tenant), None)?;
                let found = match place.tenant_id() {
                    Some(tenant) => store::find_group_role(tx, tenant, id)?,
                    None => None,
                };
                Ok((place, found))
            })
            .await?;
        let found = found.map(|group_role| {
            let scope = group_role.scope;
            (group_role, scope)
        });
        let name = id.to_string();
        let (group_role, resource) =
            place.authorize_named(ctx, &GROUP_ROLE_DELETE, "group-role", &name, found).await?;
        let dealt = may_deal_in(&ctx.principal, &group_role.scope, group_role.role);
        self.insist(ctx, &GROUP_ROLE_DELETE, &resource, dealt).await?;
        let ctx = ctx.clone();
        let moved = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                if store::delete_group_role(tx, id)? == 0 {
                    return Err(Error::not_found("group-role", id));
                }
                let change = Change::new(&GROUP_ROLE_DELETE, &resource)
                    .event("group-role.deleted", &json!({ "id": id }))
                    .before(&group_role)
                    .detail("group", &group_role.group)
                    .detail("role", group_role.role);
                tx.record(&ctx, change)?;
                Ok(moved)
            })
            .await?;
        self.epoch.publish(moved);
        Ok(())
    }

    pub async fn group_roles(
        &self,
        ctx: &Ctx,
        tenant: Name,
        page: PageQuery,
    ) -> Result<Page<GroupRole>> {
        let limit = page.limit()?;
        let place = self.db.read(move |tx| Place::find(tx, Some(tenant), None)).await?;
        let scope = place.to_list(ctx, &GROUP_ROLE_READ, "group-role").await?;
        let tenant = scope.tenant().ok_or_else(|| Error::internal("a place outside tenants"))?;
        let caller = ctx.clone();
        let seen = self
            .db
            .read(move |tx| {
                visible(
                    limit,
                    page.after(),
                    |after, count| store::list_group_roles(tx, tenant, after, count),
                    |g| {
                        let resource = Resource::new("group-role", g.id, g.scope);
                        caller.allows(&GROUP_ROLE_READ, &resource)
                    },
                    |g| g.id.to_string(),
                )
            })
            .await?;
        if seen.items.is_empty() {
            place.nothing_visible(ctx, &GROUP_ROLE_READ, "group-role").await?;
        }
        ctx.filtered(&GROUP_ROLE_READ);
        Ok(seen)
    }

    /// Records a refusal that a rule of this module gave after the policies had allowed.
    async fn insist(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        resource: &Resource,
        outcome: Result<()>,
    ) -> Result<()> {
        let Err(error) = outcome else { return Ok(()) };
        let at = self.db.now();
        let entry = AuditEntry::denied(ctx, action, resource, at, error.message(), Vec::new());
        self.db.write(move |tx| tx.append_audit(&entry)).await?;
        Err(error)
    }
}

/// Whether the caller may know of a principal it wants to give a role to: people of one tenant may
/// know of each other, and staff of whoever belongs where the role is to hold.
fn may_know(ctx: &Ctx, subject: &Subject, scope: &Scope) -> bool {
    match ctx.principal.home {
        Some(home) => subject.home == Some(home),
        None => {
            subject.home.is_none()
                || subject.home == scope.tenant()
                || knows(&ctx.principal, &Scope::Platform)
        }
    }
}

/// Refuses a binding over the limit of its tenant.
fn room(tx: &mut Tx<'_>, tenant: Option<TenantId>, limit: usize) -> Result<()> {
    if store::count_bindings(tx, tenant)? < limit {
        return Ok(());
    }
    let text = format!("there are {limit} role bindings here, which is the limit");
    Err(Error::new(&code::CONFLICT, text))
}

fn held_already(error: Error, what: impl std::fmt::Display) -> Error {
    if error.code() == &code::ALREADY_EXISTS {
        Error::already_exists("the binding", what)
    } else {
        error
    }
}
