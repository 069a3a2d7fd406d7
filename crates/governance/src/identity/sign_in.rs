//! Signing in and out: what happens between a proven credential and a token or cookie.

use std::sync::Arc;

use falaj_base::{
    Action, Ctx, Error, Gate, Principal, RequestInfo, Resource, Result, Role, Secret, Timestamp,
    code,
};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use futures::future::BoxFuture;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::actions::{SELF_SIGN_IN, SELF_SIGN_OUT};
use super::authenticate::{Authenticator, Proven, principal};
use super::cache::Found;
use super::credential::Credential;
use super::oidc::flow::{Callback, Started};
use super::principal::home_scope;
use super::refusal::{Refusal, unauthenticated};
use super::session::{self, cookie};
use super::store;
use super::token::text::TokenText;
use super::token::{self, Origin, Token, expose, sign_in_scope};
use crate::epoch::Epoch;

/// The answer to a sign-in by a program.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SignedIn {
    /// An API token that acts as the user, `flj_…`.
    #[serde(serialize_with = "expose")]
    #[schemars(with = "String")]
    pub token: Secret,
    pub expires_at: Timestamp,
}

/// A browser that has signed in: its cookie, and the page to show next.
#[derive(Debug)]
pub(super) struct Welcome {
    pub set_cookie: String,
    pub return_to: String,
}

/// Lets people act on their own account while they sign in and out, and do nothing else: at that
/// moment no policy has a say, only who they are.
#[derive(Debug)]
struct OwnAccount;

impl Gate for OwnAccount {
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        action: &'static Action,
        resource: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        let allowed = self.allows(ctx, action, resource);
        Box::pin(async move {
            if allowed {
                Ok(())
            } else {
                Err(Error::new(&code::FORBIDDEN, "only signing in and out"))
            }
        })
    }

    fn allows(&self, ctx: &Ctx, action: &'static Action, resource: &Resource) -> bool {
        resource.id == ctx.principal.id.to_string()
            && [SELF_SIGN_IN.name, SELF_SIGN_OUT.name].contains(&action.name)
    }
}

/// A context in which a principal acts on its own account, and that account.
async fn own(
    principal: &Arc<Principal>,
    request: &RequestInfo,
    action: &'static Action,
) -> Result<(Ctx, Resource)> {
    let ctx = Ctx::new(principal.clone(), request.clone(), Arc::new(OwnAccount));
    let resource = own_resource(principal);
    ctx.authorize(action, &resource).await?;
    Ok((ctx, resource))
}

/// One's own account, as the gate is asked about it.
pub(super) fn own_resource(principal: &Principal) -> Resource {
    Resource::new("self", principal.id, home_scope(principal.home))
}

impl Authenticator {
    /// Signs a program in with a user's password: a token that acts as the user, for some hours.
    pub async fn sign_in_for_token(
        &self,
        user: &str,
        password: &str,
        request: &RequestInfo,
    ) -> Result<SignedIn> {
        let found = self.prove_password(user, password, request).await?;
        let principal = found.principal;
        let text = TokenText::generate()?;
        let mac = self.pepper.token_mac(text.secret());
        let now = self.clock.now();
        let token = Token {
            id: text.id,
            owner: principal.name.clone(),
            tenant: None,
            project: None,
            // The owner's own roles are the limit.
            role: Role::Admin,
            description: Some("sign-in".to_owned()),
            created_at: now,
            expires_at: now + self.config.token.login_life.get(),
            last_used_at: None,
            revoked_at: None,
            owner_id: principal.id,
            owner_home: principal.home,
            scope: sign_in_scope(principal.home, &principal.grants),
        };
        let expires_at = token.expires_at;
        let limit = self.config.token.max_per_owner;
        let (ctx, resource) = own(&principal, request, &SELF_SIGN_IN).await?;
        let write = move |tx: &mut Tx<'_>| {
            token::service::check_count(tx, token.owner_id, limit, now)?;
            token::store::insert(tx, &token, Origin::SignIn, mac)?;
            let change = Change::new(&SELF_SIGN_IN, &resource)
                .event("user.signed-in", &serde_json::json!({ "token": token.id }))
                .detail("token", token.id);
            tx.record(&ctx, change)
        };
        self.db.write(write).await?;
        Ok(SignedIn { token: text.expose(), expires_at })
    }

    /// Signs a browser in with a user's password.
    pub(super) async fn sign_in_for_session(
        &self,
        user: &str,
        password: &str,
        headers: &HeaderMap,
        request: &RequestInfo,
    ) -> Result<String> {
        let found = self.prove_password(user, password, request).await?;
        self.open_session(found.principal, headers, request).await
    }

    pub(super) async fn prove_password(
        &self,
        user: &str,
        password: &str,
        request: &RequestInfo,
    ) -> Result<Found> {
        let credential = Credential::password(user, password)
            .ok_or_else(|| self.deny(Refusal::Malformed.into(), String::new(), request))?;
        self.prove(&credential, request).await
    }

    /// Sends a browser to a provider.
    pub(super) async fn start_at_provider(
        &self,
        name: &str,
        return_to: Option<&str>,
    ) -> Result<Started> {
        let missing = || Error::not_found("sign-in provider", name);
        let provider = self.providers.named(name).ok_or_else(missing)?;
        if provider.config.client_id.is_none() {
            return Err(missing());
        }
        provider.start(&self.pepper, &self.redirect_uri()?, return_to).await
    }

    /// Takes a browser back from a provider.
    pub(super) async fn finish_at_provider(
        &self,
        headers: &HeaderMap,
        callback: &Callback,
        request: &RequestInfo,
    ) -> Result<Welcome> {
        self.may_try(request)?;
        let refuse = |denied| self.deny(denied, String::new(), request);
        let cookie =
            cookie::read(headers, cookie::LOGIN).map_err(|_| refuse(Refusal::Several.into()))?;
        // Without a public address nobody was ever sent to a provider, so nobody can come back.
        let redirect = self.redirect_uri().map_err(|_| refuse(Refusal::UnknownLogin.into()))?;
        let now = self.clock.now();
        let finished = self
            .providers
            .finish(&self.pepper, now, &redirect, cookie, callback)
            .await
            .map_err(refuse)?;
        let (found, _) =
            self.by_subject(finished.provider, finished.subject, request).await.map_err(refuse)?;
        let set_cookie = self.open_session(found.principal, headers, request).await?;
        Ok(Welcome { set_cookie, return_to: finished.return_to })
    }

    fn redirect_uri(&self) -> Result<String> {
        let public = self.public.as_ref().ok_or_else(|| {
            Error::internal("a provider for people is configured without a public address")
        })?;
        Ok(format!("{public}/auth/oidc/callback"))
    }

    /// Opens a session under a new id, and ends the one the browser came with: an id that someone
    /// planted before sign-in is worth nothing after it.
    async fn open_session(
        &self,
        principal: Arc<Principal>,
        headers: &HeaderMap,
        request: &RequestInfo,
    ) -> Result<String> {
        let old = cookie::read(headers, cookie::SESSION).ok().flatten().map(Secret::new);
        let config = self.config.session.clone();
        let (ctx, resource) = own(&principal, request, &SELF_SIGN_IN).await?;
        let write = move |tx: &mut Tx<'_>| {
            let moved = match &old {
                Some(old) if session::close(tx, old.expose())? => Some(Epoch::bump(tx)?),
                _ => None,
            };
            let (id, groups) = (principal.id, &principal.groups);
            let text = session::open(tx, &config, id, groups, principal.mfa)?;
            let change = Change::new(&SELF_SIGN_IN, &resource)
                .event("user.signed-in", &serde_json::json!({ "session": true }));
            tx.record(&ctx, change)?;
            Ok((text, moved))
        };
        let (text, moved) = self.db.write(write).await?;
        if let Some(moved) = moved {
            self.epoch.publish(moved);
        }
        Ok(cookie::set(cookie::SESSION, &text))
    }

    /// Ends the browser's session, if it has one. Whatever it had, it has none afterwards: the
    /// cookie alone says which session that is, even if the request offers something else besides
    /// or the session would no longer be taken as proof. What fails on our side is an error, since
    /// the session may then still work.
    pub(super) async fn sign_out(&self, headers: &HeaderMap, request: &RequestInfo) -> Result<()> {
        let text = match cookie::read(headers, cookie::SESSION) {
            Ok(Some(text)) => Secret::new(text),
            Ok(None) => return Ok(()),
            Err(_) => return Err(unauthenticated()),
        };
        let cookie = text.clone();
        let read = move |tx: &mut Tx<'_>| {
            let Some(session) = session::find(tx, cookie.expose())? else { return Ok(None) };
            let Some(account) = store::by_id(tx, session.principal)? else { return Ok(None) };
            principal(tx, &account, Proven::Session(session)).map(Some)
        };
        let Some(principal) = self.db.read(read).await? else { return Ok(()) };
        let (ctx, resource) = own(&Arc::new(principal), request, &SELF_SIGN_OUT).await?;
        let write = move |tx: &mut Tx<'_>| {
            let moved = Epoch::bump(tx)?;
            session::close(tx, text.expose())?;
            let change = Change::new(&SELF_SIGN_OUT, &resource)
                .event("user.signed-out", &serde_json::json!({ "session": true }));
            tx.record(&ctx, change)?;
            Ok(moved)
        };
        self.epoch.publish(self.db.write(write).await?);
        Ok(())
    }
}
