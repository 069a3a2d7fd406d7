//! Changing one's own password.
//!
//! Must hold:
//! - The current password is asked for, whatever the credential of the request: a stolen token must
//!   not become an account. Guessing it counts as failing to sign in, and is limited and audited
//!   like that.
//! - Every browser session and every sign-in ends, but for the token that the request came with.
//!   Tokens that were asked for by name stay, as when an admin sets the password.

use falaj_base::{Ctx, Error, PrincipalKind, Result, Secret, code};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Deserialize;

use super::actions::SELF_PASSWORD;
use super::service::Identity;
use super::sign_in::own_resource;
use super::{session, store, token};
use crate::epoch::Epoch;

/// A new password for the caller.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnPassword {
    /// The one that is in force now.
    pub current: Secret,
    /// The one to come.
    pub password: Secret,
}

impl Identity {
    pub async fn change_own_password(&self, ctx: &Ctx, change: OwnPassword) -> Result<()> {
        let (principal, resource) = (ctx.principal.clone(), own_resource(&ctx.principal));
        ctx.authorize(&SELF_PASSWORD, &resource).await?;
        let name = principal.name.clone();
        let row = self.auth.db.read(move |tx| store::sign_in_row(tx, &name)).await?;
        let held = row.filter(|(account, _)| account.id == principal.id).and_then(|(_, hash)| hash);
        let Some(held) = held.filter(|_| principal.kind == PrincipalKind::User) else {
            let text = "this account has no password here to change";
            return Err(Error::new(&code::CONFLICT, text));
        };
        let current = change.current.expose();
        let proven = self.auth.prove_password(&principal.name, current, &ctx.request).await;
        proven.map_err(|error| match error.code() {
            // Not 401: the credential of this request is sound.
            wrong if wrong == &code::UNAUTHENTICATED => {
                Error::invalid("current", "given", "your current password")
            }
            _ => error,
        })?;
        let hash = self.auth.passwords.hash(&principal.name, &change.password).await?;
        let (ctx, kept) = (ctx.clone(), principal.token.as_ref().map(|token| token.id));
        let write = move |tx: &mut Tx<'_>| {
            let moved = Epoch::bump(tx)?;
            // Under the epoch's lock: an admin may have set another one, or disabled the account.
            let now_held = store::sign_in_row(tx, &principal.name)?.and_then(|(_, hash)| hash);
            if now_held.as_ref() != Some(&held) {
                return Err(Error::new(&code::CONFLICT, "the password has just been changed"));
            }
            store::set_password(tx, principal.id, &hash)?;
            let now = tx.now();
            token::store::revoke_sign_ins(tx, principal.id, kept, now)?;
            session::close_all(tx, principal.id)?;
            let told = serde_json::json!({ "id": principal.id });
            let change = Change::new(&SELF_PASSWORD, &resource)
                .event("user.password-changed", &told)
                .detail("password_changed", true);
            tx.record(&ctx, change)?;
            Ok(moved)
        };
        self.auth.epoch.publish(self.auth.db.write(write).await?);
        Ok(())
    }
}
