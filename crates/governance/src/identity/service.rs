//! The verbs on users and service accounts.
//!
//! Must hold:
//! - A tenant's admin deals with the principals of that tenant; those of others do not exist.
//! - Whatever takes rights away moves the epoch in the same transaction, so that no cache outlives
//!   it, and ends the sessions. Removal takes every token along; a new password revokes the tokens
//!   that came from signing in, and leaves those that were asked for by name. Disabling revokes no
//!   token: none is taken while its owner is disabled, and those that remain work again once it is
//!   enabled.
//! - One enabled platform admin always remains.
//!
//! Making an account changes nothing that any cache could hold, so it does not move the epoch.

use std::sync::Arc;

use falaj_base::{
    Action, Ctx, Error, Name, Page, PageQuery, Principal, PrincipalId, PrincipalKind, Resource,
    Result, Scope, Secret, UserName, code,
};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::SELF_READ;
use super::authenticate::Authenticator;
use super::principal::{Account, Class, MAX_DISPLAY_NAME, check_text, home_scope, new_name};
use super::sign_in::own_resource;
use super::store::{self, LOCAL, NewAccount};
use super::{session, token};
use crate::epoch::Epoch;

/// Users, service accounts and tokens.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(super) auth: Arc<Authenticator>,
}

/// A user to be added.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    pub name: UserName,
    /// The tenant the user belongs to; absent for the platform's own staff.
    pub tenant: Option<Name>,
    #[schemars(length(min = 1, max = 200))]
    pub display_name: Option<String>,
    /// Without one the user cannot sign in with a password.
    pub password: Option<Secret>,
}

/// A service account to be added.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewServiceAccount {
    pub name: UserName,
    /// The tenant it belongs to; absent for the platform itself.
    pub tenant: Option<Name>,
    #[schemars(length(min = 1, max = 200))]
    pub display_name: Option<String>,
}

/// What can be changed about a user. What is absent stays as it is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPatch {
    #[schemars(length(min = 1, max = 200))]
    pub display_name: Option<String>,
    /// A new password; it ends every session and sign-in of the user.
    pub password: Option<Secret>,
    /// A disabled user cannot do anything, and keeps its roles for when it is enabled again.
    pub disabled: Option<bool>,
}

/// What can be changed about a service account. What is absent stays as it is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccountPatch {
    #[schemars(length(min = 1, max = 200))]
    pub display_name: Option<String>,
    pub disabled: Option<bool>,
}

/// Who the caller is, as far as this server knows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WhoAmI {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// How the caller signed in: `token`, `session` or `oidc`.
    pub method: String,
    /// Whether the identity provider vouched for a second factor.
    pub mfa: bool,
    pub groups: Vec<String>,
    /// The roles held, each with where: `platform`, a tenant id, or tenant and project id.
    pub roles: Vec<HeldRole>,
}

/// A role and where it holds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeldRole {
    pub role: falaj_base::Role,
    pub scope: String,
}

impl Identity {
    #[must_use]
    pub fn new(auth: Arc<Authenticator>) -> Self {
        Self { auth }
    }

    pub async fn create_user(&self, ctx: &Ctx, new: NewUser) -> Result<Account> {
        let scope = self.home_for(ctx, Class::User, &new.name, new.tenant.as_ref()).await?;
        let hash = match &new.password {
            Some(password) => Some(self.auth.passwords.hash(new.name.as_str(), password).await?),
            None => None,
        };
        self.create(ctx, Class::User, new.name, scope, new.display_name, hash).await
    }

    pub async fn create_service_account(
        &self,
        ctx: &Ctx,
        new: NewServiceAccount,
    ) -> Result<Account> {
        let class = Class::ServiceAccount;
        let scope = self.home_for(ctx, class, &new.name, new.tenant.as_ref()).await?;
        self.create(ctx, class, new.name, scope, new.display_name, None).await
    }

    /// Authorises making an account in a tenant, before any work is done for it. A tenant that is
    /// not there and one that is not the caller's read the same.
    async fn home_for(
        &self,
        ctx: &Ctx,
        class: Class,
        name: &UserName,
        tenant: Option<&Name>,
    ) -> Result<Scope> {
        let given = tenant.cloned();
        let scope = self.auth.db.read(move |tx| store::place(tx, given.as_ref(), None)).await?;
        let resource = match scope {
            Some(scope) => Resource::new(class.noun(), name, scope),
            None => Resource::absent(class.noun(), name, home_scope(ctx.principal.home)),
        };
        let missing = || match tenant {
            Some(tenant) => Error::not_found("tenant", tenant),
            None => Error::not_found(class.noun(), name),
        };
        ctx.authorize(class.create(), &resource)
            .await
            .map_err(|error| if error.code() == &code::NOT_FOUND { missing() } else { error })?;
        scope.ok_or_else(missing)
    }

    async fn create(
        &self,
        ctx: &Ctx,
        class: Class,
        name: UserName,
        scope: Scope,
        display_name: Option<String>,
        password_hash: Option<String>,
    ) -> Result<Account> {
        let name = new_name(name)?;
        check_text("display_name", display_name.as_ref(), MAX_DISPLAY_NAME)?;
        let new = NewAccount {
            id: PrincipalId::new(),
            kind: class.kind(),
            name: name.to_string(),
            tenant: scope.tenant(),
            display_name,
            issuer: LOCAL.to_owned(),
            subject: name.to_string(),
            password_hash,
        };
        let resource = Resource::new(class.noun(), new.id, scope).shown_as(&name);
        ctx.authorize(class.create(), &resource).await?;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            let account = store::insert(tx, &new)?;
            let change = Change::new(class.create(), &resource)
                .event(class.events().0, &account)
                .after(&account)
                .reply(201, &account);
            tx.record(&ctx, change)?;
            Ok(account)
        };
        self.auth.db.write(write).await
    }

    pub async fn read(&self, ctx: &Ctx, class: Class, name: &str) -> Result<Account> {
        Ok(self.find(ctx, class, class.read(), name).await?.0)
    }

    /// Finds an account that the caller may do `action` to; every other one is not there.
    pub(super) async fn find(
        &self,
        ctx: &Ctx,
        class: Class,
        action: &'static Action,
        name: &str,
    ) -> Result<(Account, Resource)> {
        let given = name.to_owned();
        let account = self.auth.db.read(move |tx| store::find(tx, &given)).await?;
        let Some(account) = account.filter(|account| Class::of(account.kind) == class) else {
            let nowhere = Resource::absent(class.noun(), name, home_scope(ctx.principal.home));
            ctx.authorize(action, &nowhere).await?;
            return Err(Error::not_found(class.noun(), name));
        };
        let resource = account.resource(name);
        ctx.authorize(action, &resource).await?;
        Ok((account, resource))
    }

    /// A page of those accounts that the caller may read. Pages can be short where others' rows
    /// lie between; only the absence of a token ends the list.
    pub async fn list(&self, ctx: &Ctx, class: Class, query: &PageQuery) -> Result<Page<Account>> {
        let limit = query.limit()?;
        let (after, home) = (query.after().to_owned(), ctx.principal.home);
        let rows =
            self.auth.db.read(move |tx| store::list(tx, class, home, &after, limit + 1)).await?;
        let mut page = Page::cut(rows, limit, |account| account.id.to_string());
        page.items.retain(|account| ctx.allows(class.read(), &account.resource(&account.name)));
        ctx.filtered(class.read());
        Ok(page)
    }

    pub async fn update_user(&self, ctx: &Ctx, name: &str, patch: UserPatch) -> Result<Account> {
        let (account, resource) =
            self.find(ctx, Class::User, &super::actions::USER_UPDATE, name).await?;
        let hash = match &patch.password {
            Some(_) if account.issuer.is_some() => {
                let allowed = "nothing: this user signs in at its provider";
                return Err(Error::invalid("password", "given", allowed));
            }
            Some(password) => Some(self.auth.passwords.hash(&account.name, password).await?),
            None => None,
        };
        self.update(ctx, Class::User, account, resource, patch.display_name, patch.disabled, hash)
            .await
    }

    pub async fn update_service_account(
        &self,
        ctx: &Ctx,
        name: &str,
        patch: ServiceAccountPatch,
    ) -> Result<Account> {
        let class = Class::ServiceAccount;
        let (account, resource) = self.find(ctx, class, class.update(), name).await?;
        self.update(ctx, class, account, resource, patch.display_name, patch.disabled, None).await
    }

    #[allow(clippy::too_many_arguments, reason = "one private step shared by two verbs")]
    async fn update(
        &self,
        ctx: &Ctx,
        class: Class,
        old: Account,
        resource: Resource,
        display_name: Option<String>,
        disabled: Option<bool>,
        password_hash: Option<String>,
    ) -> Result<Account> {
        check_text("display_name", display_name.as_ref(), MAX_DISPLAY_NAME)?;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            let moved = Epoch::bump(tx)?;
            // Read again under the epoch's lock: another change may have come in between.
            let old = store::by_id(tx, old.id)?
                .ok_or_else(|| Error::not_found(class.noun(), resource.shown()))?;
            let mut new = old.clone();
            new.display_name = display_name.or(new.display_name);
            new.disabled = disabled.unwrap_or(new.disabled);
            if new.disabled && !old.disabled {
                may_lose(tx, &ctx.principal, &new)?;
            }
            store::update(tx, &new)?;
            if let Some(hash) = &password_hash {
                store::set_password(tx, new.id, hash)?;
                let now = tx.now();
                token::store::revoke_sign_ins(tx, new.id, None, now)?;
            }
            if new.disabled || password_hash.is_some() {
                session::close_all(tx, new.id)?;
            }
            let change = Change::new(class.update(), &resource)
                .event(class.events().1, &new)
                .before(&old)
                .after(&new)
                .detail("password_changed", password_hash.is_some())
                .reply(200, &new);
            tx.record(&ctx, change)?;
            Ok((new, moved))
        };
        let (account, moved) = self.auth.db.write(write).await?;
        self.auth.epoch.publish(moved);
        Ok(account)
    }

    pub async fn delete(&self, ctx: &Ctx, class: Class, name: &str) -> Result<()> {
        let (account, resource) = self.find(ctx, class, class.delete(), name).await?;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            let moved = Epoch::bump(tx)?;
            may_lose(tx, &ctx.principal, &account)?;
            crate::authz::store::forget_principal(tx, account.id)?;
            store::delete(tx, account.id)?;
            let change = Change::new(class.delete(), &resource)
                .event(class.events().2, &account)
                .before(&account);
            tx.record(&ctx, change)?;
            Ok(moved)
        };
        self.auth.epoch.publish(self.auth.db.write(write).await?);
        Ok(())
    }

    pub async fn who_am_i(&self, ctx: &Ctx) -> Result<WhoAmI> {
        let principal = ctx.principal.clone();
        ctx.authorize(&SELF_READ, &own_resource(&principal)).await?;
        let id = principal.id;
        let account = self.auth.db.read(move |tx| store::by_id(tx, id)).await?;
        let (tenant, display_name) =
            account.map_or((None, None), |account| (account.tenant, account.display_name));
        let method = serde_json::to_value(principal.method).map_err(Error::internal)?;
        let held = |grant: &falaj_base::Grant| HeldRole {
            role: grant.role,
            scope: grant.scope.to_string(),
        };
        Ok(WhoAmI {
            id,
            kind: principal.kind,
            name: principal.name.clone(),
            tenant,
            display_name,
            method: method.as_str().unwrap_or_default().to_owned(),
            mfa: principal.mfa,
            groups: principal.groups.to_vec(),
            roles: principal.grants.iter().map(held).collect(),
        })
    }
}

/// Refuses to shut out the caller itself, or the last one who could let people in again. Call it
/// with the epoch moved, which serialises such changes.
fn may_lose(tx: &mut Tx<'_>, caller: &Principal, account: &Account) -> Result<()> {
    if account.id == caller.id {
        return Err(Error::new(&code::CONFLICT, "you cannot disable or remove yourself"));
    }
    let grants = crate::authz::grants_of(tx, account.id, &[], None)?;
    let is_admin = grants
        .iter()
        .any(|grant| grant.scope == Scope::Platform && grant.role == falaj_base::Role::Admin);
    if is_admin && crate::authz::store::other_platform_admins(tx, account.id)? == 0 {
        return Err(Error::new(&code::CONFLICT, "the last platform admin must stay"));
    }
    Ok(())
}
