//! A place in the tree as a caller names it, and the answers that do not tell a place that is not
//! there from one that is not the caller's.

use falaj_base::{Action, Ctx, Error, Name, Resource, Result, Scope, TenantId, code};
use falaj_store::db::Tx;

use super::gate::knows;
use super::store;

/// What the names stand for.
#[derive(Clone, Debug)]
pub(super) struct Place {
    tenant: Option<Name>,
    project: Option<Name>,
    /// The scope, if everything that was named exists.
    found: Option<Scope>,
    /// The innermost scope on the way that does exist.
    nearest: Scope,
}

impl Place {
    /// Looks the names up. No tenant means the platform itself.
    pub(super) fn find(
        tx: &mut Tx<'_>,
        tenant: Option<Name>,
        project: Option<Name>,
    ) -> Result<Self> {
        let Some(tenant) = tenant else {
            return match project {
                Some(project) => {
                    Err(Error::invalid("project", project, "a project beside its `tenant`"))
                }
                None => Ok(Self {
                    tenant: None,
                    project: None,
                    found: Some(Scope::Platform),
                    nearest: Scope::Platform,
                }),
            };
        };
        let (found, nearest) = match store::find_place(tx, &tenant, project.as_ref())? {
            (None, _) => (None, Scope::Platform),
            (Some(id), None) if project.is_some() => (None, Scope::Tenant(id)),
            (Some(id), None) => (Some(Scope::Tenant(id)), Scope::Tenant(id)),
            (Some(id), Some(inner)) => (Some(Scope::Project(id, inner)), Scope::Project(id, inner)),
        };
        Ok(Self { tenant: Some(tenant), project, found, nearest })
    }

    /// The tenant, if it exists, also when the project in it does not.
    pub(super) fn tenant_id(&self) -> Option<TenantId> {
        self.nearest.tenant()
    }

    /// Whether the caller holds a role here, and so may know that the place exists.
    pub(super) fn is_known_to(&self, ctx: &Ctx) -> bool {
        self.found.is_some_and(|scope| scope == Scope::Platform || knows(&ctx.principal, &scope))
    }

    /// Authorises something that is to be made, or replaced, in this place.
    pub(super) async fn authorize(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        kind: &'static str,
        id: impl std::fmt::Display,
    ) -> Result<Resource> {
        let Some(scope) = self.found else { return Err(self.missing(ctx, action, kind).await) };
        let resource = Resource::new(kind, id, scope);
        match ctx.authorize(action, &resource).await {
            Ok(()) => Ok(resource),
            Err(error) if error.code() != &code::NOT_FOUND => Err(error),
            // Refused in the same words whether or not a thing of that name is there already.
            Err(_) if self.is_known_to(ctx) => Err(Error::new(
                &code::FORBIDDEN,
                format!(
                    "`{}` is not allowed to you here; the role {} would allow it",
                    action.name, action.role
                ),
            )),
            Err(_) => Err(self.not_here()),
        }
    }

    /// Authorises one thing that the caller named in this place, there or not. Gives it back only
    /// if it is there and the caller may have it.
    pub(super) async fn authorize_named<T>(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        kind: &'static str,
        name: &str,
        thing: Option<(T, Scope)>,
    ) -> Result<(T, Resource)> {
        let Some(place) = self.found else { return Err(self.missing(ctx, action, kind).await) };
        let not_found = || {
            if self.is_known_to(ctx) { Error::not_found(kind, name) } else { self.not_here() }
        };
        let resource = match &thing {
            Some((_, scope)) => Resource::new(kind, name, *scope),
            None => Resource::absent(kind, name, place),
        };
        match (ctx.authorize(action, &resource).await, thing) {
            (Ok(()), Some((thing, _))) => Ok((thing, resource)),
            (Ok(()), None) => Err(not_found()),
            (Err(error), _) if error.code() == &code::NOT_FOUND => Err(not_found()),
            (Err(error), _) => Err(error),
        }
    }

    /// The scope to list things of; refuses a place that is not there.
    pub(super) async fn to_list(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        kind: &'static str,
    ) -> Result<Scope> {
        match self.found {
            Some(scope) => Ok(scope),
            None => Err(self.missing(ctx, action, kind).await),
        }
    }

    /// Ends a list in which nothing was visible: an empty list for whoever knows the place, and
    /// for anybody else the answer that a place which is not there gives.
    pub(super) async fn nothing_visible(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        kind: &'static str,
    ) -> Result<()> {
        if self.is_known_to(ctx) {
            return Ok(());
        }
        let whole = Resource::new(kind, self.nearest, self.nearest);
        match ctx.authorize(action, &whole).await {
            Ok(()) => Ok(()),
            Err(error) if error.code().kind == code::INTERNAL.kind => Err(error),
            Err(_) => Err(self.not_here()),
        }
    }

    /// Leaves the trace that asking for a place of somebody else's leaves, and says the same.
    async fn missing(&self, ctx: &Ctx, action: &'static Action, kind: &'static str) -> Error {
        let absent = Resource::absent(kind, self.shown(), self.nearest);
        match ctx.authorize(action, &absent).await {
            Err(error) if error.code() != &code::NOT_FOUND => error,
            _ => self.not_here(),
        }
    }

    fn not_here(&self) -> Error {
        let what = if self.project.is_some() { "project" } else { "tenant" };
        Error::not_found(what, self.shown())
    }

    fn shown(&self) -> String {
        match (&self.tenant, &self.project) {
            (None, _) => "platform".to_owned(),
            (Some(tenant), None) => tenant.to_string(),
            (Some(tenant), Some(project)) => format!("{tenant}/{project}"),
        }
    }
}
