//! The verbs on API tokens.

use falaj_base::{
    Ctx, Error, HumanDuration, Name, Page, PageQuery, Principal, PrincipalId, PrincipalKind,
    Resource, Result, Role, Scope, TenantId, Timestamp, TokenId, code,
};
use falaj_store::db::Tx;
use falaj_store::record::{AuditEntry, Change};
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::TokenText;
use super::{NewToken, Origin, Token, store};
use crate::authz::bindings::holds;
use crate::epoch::Epoch;
use crate::identity::actions::{
    TOKEN_CREATE, TOKEN_MANAGE, TOKEN_READ, TOKEN_READ_ANY, TOKEN_REVOKE,
};
use crate::identity::principal::{Class, check_text, home_scope};
use crate::identity::service::Identity;
use crate::identity::store as accounts;

/// The longest description.
const MAX_DESCRIPTION: usize = 500;
/// The longest name of an owner: that of the longest sign-in name.
const MAX_OWNER: usize = 127;

/// A token to be made.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The service account it is for, by name or id; absent for oneself.
    #[schemars(length(min = 1, max = 127))]
    pub owner: Option<String>,
    /// Confines it to a tenant.
    pub tenant: Option<Name>,
    /// Confines it to a project of that tenant.
    pub project: Option<Name>,
    /// The highest role it can act in; at most the maker's own there.
    pub role: Role,
    #[schemars(length(min = 1, max = 500))]
    pub description: Option<String>,
    /// When it ends; after 90 days if absent.
    pub expires_at: Option<Timestamp>,
}

/// Whom a token is for.
struct Owner {
    id: PrincipalId,
    name: String,
    home: Option<TenantId>,
}

impl Identity {
    pub async fn create_token(&self, ctx: &Ctx, request: TokenRequest) -> Result<NewToken> {
        check_text("owner", request.owner.as_ref(), MAX_OWNER)?;
        check_text("description", request.description.as_ref(), MAX_DESCRIPTION)?;
        let config = &self.auth.config.token;
        let now = self.auth.clock.now();
        let expires_at = expiry(now, request.expires_at, config.default_life, config.max_life)?;
        let text = TokenText::generate()?;
        let scope = self.reach(ctx, &request, text.id).await?;
        let owner = self.token_owner(ctx, request.owner.as_deref(), text.id).await?;
        if owner.home.is_some() && scope.tenant() != owner.home {
            let allowed = "the tenant that the owner belongs to";
            let given = request.tenant.as_ref().map_or("", Name::as_str);
            return Err(Error::invalid("tenant", given, allowed));
        }
        let token = Token {
            id: text.id,
            owner: owner.name,
            tenant: request.tenant.as_ref().map(Name::to_string),
            project: request.project.as_ref().map(Name::to_string),
            role: request.role,
            description: request.description,
            created_at: now,
            expires_at,
            last_used_at: None,
            revoked_at: None,
            owner_id: owner.id,
            owner_home: owner.home,
            scope,
        };
        let resource = Resource::new("token", token.id, scope);
        let new = NewToken { token, secret: text.expose() };
        let mac = self.auth.pepper.token_mac(text.secret());
        let limit = config.max_per_owner;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            check_count(tx, new.token.owner_id, limit, now)?;
            store::insert(tx, &new.token, Origin::Made, mac)?;
            let change = Change::new(&TOKEN_CREATE, &resource)
                .event("token.created", &new.token)
                .after(&new.token)
                .detail("owner", new.token.owner_id)
                .reply(201, &new);
            tx.record(&ctx, change)?;
            Ok(new)
        };
        self.auth.db.write(write).await
    }

    /// Where the token is to reach, if the maker reaches that far itself.
    async fn reach(&self, ctx: &Ctx, request: &TokenRequest, id: TokenId) -> Result<Scope> {
        if request.project.is_some() && request.tenant.is_none() {
            return Err(Error::invalid("tenant", "absent", "the tenant of the project"));
        }
        let (tenant, project) = (request.tenant.clone(), request.project.clone());
        let read = move |tx: &mut Tx<'_>| accounts::place(tx, tenant.as_ref(), project.as_ref());
        let scope = self.auth.db.read(read).await?;
        // The place is named by the innermost name that was given; one that is not there and one
        // that is somebody else's read the same.
        let missing = || match (&request.project, &request.tenant) {
            (Some(project), _) => Error::not_found("project", project),
            (None, Some(tenant)) => Error::not_found("tenant", tenant),
            (None, None) => Error::new(&code::FORBIDDEN, "this needs a role on the platform"),
        };
        let resource = match scope {
            Some(scope) => Resource::new("token", id, scope),
            None => Resource::absent("token", id, home_scope(ctx.principal.home)),
        };
        ctx.authorize(&TOKEN_CREATE, &resource)
            .await
            .map_err(|error| if error.code() == &code::NOT_FOUND { missing() } else { error })?;
        let scope = scope.ok_or_else(missing)?;
        if holds(&ctx.principal, &scope, request.role) {
            return Ok(scope);
        }
        let allowed = "a role that you hold there yourself";
        let error = Error::invalid("role", request.role, allowed);
        // Reaching for more than one has is a denial like the gate's own, and leaves the same trace.
        let (at, why) = (self.auth.db.now(), error.message());
        let entry = AuditEntry::denied(ctx, &TOKEN_CREATE, &resource, at, why, Vec::new());
        self.auth.db.write(move |tx| tx.append_audit(&entry)).await?;
        Err(error)
    }

    /// The caller itself, or a service account that the caller manages.
    async fn token_owner(&self, ctx: &Ctx, owner: Option<&str>, id: TokenId) -> Result<Owner> {
        let caller = &ctx.principal;
        let own = |principal: &Principal| Owner {
            id: principal.id,
            name: principal.name.clone(),
            home: principal.home,
        };
        let Some(given) = owner else { return Ok(own(caller)) };
        let is_caller = *given == caller.id.to_string()
            || *given == caller.name && caller.kind != PrincipalKind::System;
        if is_caller {
            return Ok(own(caller));
        }
        let class = Class::ServiceAccount;
        let (account, _) = self.find(ctx, class, class.read(), given).await?;
        let resource = Resource::new("token", id, home_scope(account.home));
        ctx.authorize(&TOKEN_MANAGE, &resource).await?;
        Ok(Owner { id: account.id, name: account.name, home: account.home })
    }

    pub async fn read_token(&self, ctx: &Ctx, id: TokenId) -> Result<Token> {
        let token = self.auth.db.read(move |tx| store::find(tx, id)).await?;
        let Some(token) = token else { return Err(self.no_token(ctx, id, &TOKEN_READ_ANY).await) };
        if token.is_own(&ctx.principal) {
            ctx.authorize(&TOKEN_READ, &token.as_own(&ctx.principal)).await?;
        } else {
            ctx.authorize(&TOKEN_READ_ANY, &token.as_anothers()).await?;
            ctx.filtered(&TOKEN_READ);
        }
        Ok(token)
    }

    /// A token that is not there is refused as one that is not the caller's would be.
    async fn no_token(&self, ctx: &Ctx, id: TokenId, action: &'static falaj_base::Action) -> Error {
        let nowhere = Resource::absent("token", id, home_scope(ctx.principal.home));
        match ctx.authorize(action, &nowhere).await {
            Ok(()) => Error::not_found("token", id),
            Err(error) => error,
        }
    }

    /// A page of the caller's own tokens and of those it may see of others.
    pub async fn list_tokens(&self, ctx: &Ctx, query: &PageQuery) -> Result<Page<Token>> {
        let limit = query.limit()?;
        let (owner, home) = (ctx.principal.id, ctx.principal.home);
        let after = query.after().to_owned();
        let read = move |tx: &mut Tx<'_>| store::list(tx, owner, home, &after, limit + 1);
        let rows = self.auth.db.read(read).await?;
        let mut page = Page::cut(rows, limit, |token| token.id.to_string());
        page.items.retain(|token| {
            if token.is_own(&ctx.principal) {
                ctx.allows(&TOKEN_READ, &token.as_own(&ctx.principal))
            } else {
                ctx.allows(&TOKEN_READ_ANY, &token.as_anothers())
            }
        });
        ctx.filtered(&TOKEN_READ);
        Ok(page)
    }

    pub async fn revoke_token(&self, ctx: &Ctx, id: TokenId) -> Result<()> {
        let token = self.auth.db.read(move |tx| store::find(tx, id)).await?;
        let Some(token) = token else { return Err(self.no_token(ctx, id, &TOKEN_MANAGE).await) };
        let resource = if token.is_own(&ctx.principal) {
            token.as_own(&ctx.principal)
        } else {
            ctx.authorize(&TOKEN_MANAGE, &token.as_anothers()).await?;
            token.as_anothers()
        };
        ctx.authorize(&TOKEN_REVOKE, &resource).await?;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            let moved = Epoch::bump(tx)?;
            let now = tx.now();
            store::revoke(tx, id, now)?;
            let change = Change::new(&TOKEN_REVOKE, &resource)
                .event("token.revoked", &token)
                .before(&token)
                .detail("owner", token.owner_id);
            tx.record(&ctx, change)?;
            Ok(moved)
        };
        self.auth.epoch.publish(self.auth.db.write(write).await?);
        Ok(())
    }
}

/// Every token ends, and none lives longer than the operator allows.
fn expiry(
    now: Timestamp,
    asked: Option<Timestamp>,
    default_life: HumanDuration,
    max_life: HumanDuration,
) -> Result<Timestamp> {
    let latest = now + max_life.get();
    match asked {
        None => Ok((now + default_life.get()).min(latest)),
        Some(asked) if asked > now && asked <= latest => Ok(asked),
        Some(asked) => Err(Error::invalid(
            "expires_at",
            asked,
            format!("after now and no later than {latest}"),
        )),
    }
}

/// Refuses one token too many. Tokens of one owner are made one after the other from here on, so
/// that two made at once are both counted.
pub(in crate::identity) fn check_count(
    tx: &mut Tx<'_>,
    owner: PrincipalId,
    limit: usize,
    now: Timestamp,
) -> Result<()> {
    tx.lock(&format!("tokens/{owner}"))?;
    if store::count_live(tx, owner, now)? < limit {
        return Ok(());
    }
    let text = format!("this principal has {limit} tokens that still work; revoke one first");
    Err(Error::new(&code::CONFLICT, text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_token_ends_within_the_limit() {
        let now = Timestamp::from_micros(1_000_000);
        let day = |n: u64| now + Duration::from_secs(n * 86_400);
        let (default, max) = (HumanDuration::from_days(90), HumanDuration::from_days(366));
        let check = |asked| expiry(now, asked, default, max);
        assert_eq!(check(None).unwrap(), day(90));
        assert_eq!(check(Some(day(1))).unwrap(), day(1));
        assert_eq!(check(Some(day(366))).unwrap(), day(366));
        for bad in
            [now, day(367), Timestamp::from_micros(i64::MAX), Timestamp::from_micros(i64::MIN)]
        {
            assert_eq!(check(Some(bad)).unwrap_err().field(), Some("expires_at"), "{bad}");
        }
    }
}
