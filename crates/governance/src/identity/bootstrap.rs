//! The first admin. There is no default password: a fresh database gets one service account, one
//! token, and the caller of this is told the token once.

use std::time::Duration;

use falaj_base::{Ctx, Grant, PrincipalId, PrincipalKind, Resource, Result, Role, Scope, Secret};
use falaj_store::db::{Db, Tx};
use falaj_store::record::Change;
use zeroize::Zeroizing;

use super::actions::{SERVICE_ACCOUNT_CREATE, SERVICE_ACCOUNT_UPDATE, TOKEN_CREATE};
use super::pepper::Pepper;
use super::principal::Account;
use super::store::{self, LOCAL, NewAccount};
use super::token::text::TokenText;
use super::token::{self, Origin, Token};
use crate::epoch::Epoch;

/// The name of the first service account.
pub const ADMIN: &str = "admin";
/// The first token lives as long as a token can.
const LIFE: Duration = Duration::from_hours(366 * 24);

/// On a database without any principal: makes the service account `admin`, lets it administer the
/// platform, and returns the text of its first token. On any other database: nothing, none.
pub async fn first_admin(db: &Db, pepper: &Zeroizing<[u8; 32]>) -> Result<Option<Secret>> {
    let pepper = Pepper::new(pepper)?;
    let ctx = Ctx::system("first-start");
    let (id, text) = (PrincipalId::new(), TokenText::generate()?);
    let secret = text.expose();
    let account = Resource::new("service-account", id, Scope::Platform);
    let token = Resource::new("token", text.id, Scope::Platform);
    ctx.authorize(&SERVICE_ACCOUNT_CREATE, &account).await?;
    ctx.authorize(&TOKEN_CREATE, &token).await?;
    let write = move |tx: &mut Tx<'_>| {
        // Two servers may start on one empty database at the same time.
        tx.lock("identity first start")?;
        if store::any_principal(tx)? {
            return Ok(false);
        }
        let admin = make_admin(tx, &ctx, id, &account)?;
        give_token(tx, &ctx, &pepper, &admin, &text, &token, "first start")?;
        Ok(true)
    };
    Ok(db.write(write).await?.then_some(secret))
}

/// For whoever has the database and the keys in hand but no token: a new token for the service
/// account `admin`, which is made, enabled and given its role again if need be. Run it while no
/// server runs, or wait a second until the servers notice.
pub async fn recover_admin_token(db: &Db, pepper: &Zeroizing<[u8; 32]>) -> Result<Secret> {
    let pepper = Pepper::new(pepper)?;
    let ctx = Ctx::system("recover-admin");
    let existing = db.read(|tx| store::find(tx, ADMIN)).await?;
    // A user may have taken the name; it is not to become an admin by that.
    let usable = existing.filter(|account| account.kind == PrincipalKind::ServiceAccount);
    let (id, text) = (
        usable.as_ref().map_or_else(PrincipalId::new, |account| account.id),
        TokenText::generate()?,
    );
    let secret = text.expose();
    let account = Resource::new("service-account", id, Scope::Platform);
    let token = Resource::new("token", text.id, Scope::Platform);
    ctx.authorize(&SERVICE_ACCOUNT_CREATE, &account).await?;
    ctx.authorize(&SERVICE_ACCOUNT_UPDATE, &account).await?;
    ctx.authorize(&TOKEN_CREATE, &token).await?;
    let write = move |tx: &mut Tx<'_>| {
        let _moved = Epoch::bump(tx)?;
        let admin = match store::by_id(tx, id)? {
            Some(mut admin) => {
                admin.disabled = false;
                store::update(tx, &admin)?;
                crate::authz::store::bind(tx, id, Scope::Platform, Role::Admin, ctx.principal.id)?;
                let change = Change::new(&SERVICE_ACCOUNT_UPDATE, &account)
                    .event("service-account.updated", &admin)
                    .detail("why", "admin token recovered");
                tx.record(&ctx, change)?;
                admin
            }
            None => make_admin(tx, &ctx, id, &account)?,
        };
        give_token(tx, &ctx, &pepper, &admin, &text, &token, "recovered")
    };
    db.write(write).await?;
    Ok(secret)
}

fn make_admin(tx: &mut Tx<'_>, ctx: &Ctx, id: PrincipalId, resource: &Resource) -> Result<Account> {
    // Where a user has the name already, the account gets one that says why it is there.
    let name = match store::find(tx, ADMIN)? {
        None => ADMIN.to_owned(),
        Some(_) => format!("{ADMIN}-{}", &id.as_uuid().simple().to_string()[24..]),
    };
    let new = NewAccount {
        id,
        kind: PrincipalKind::ServiceAccount,
        name: name.clone(),
        tenant: None,
        display_name: Some("First administrator".to_owned()),
        issuer: LOCAL.to_owned(),
        subject: name,
        password_hash: None,
    };
    let account = store::insert(tx, &new)?;
    let grant = Grant { scope: Scope::Platform, role: Role::Admin };
    crate::authz::store::bind(tx, id, grant.scope, grant.role, ctx.principal.id)?;
    let change = Change::new(&SERVICE_ACCOUNT_CREATE, resource)
        .event("service-account.created", &account)
        .after(&account)
        .detail("role", grant.role);
    tx.record(ctx, change)?;
    Ok(account)
}

fn give_token(
    tx: &mut Tx<'_>,
    ctx: &Ctx,
    pepper: &Pepper,
    owner: &Account,
    text: &TokenText,
    resource: &Resource,
    why: &str,
) -> Result<()> {
    let now = tx.now();
    let token = Token {
        id: text.id,
        owner: owner.name.clone(),
        tenant: None,
        project: None,
        role: Role::Admin,
        description: Some(why.to_owned()),
        created_at: now,
        expires_at: now + LIFE,
        last_used_at: None,
        revoked_at: None,
        owner_id: owner.id,
        owner_home: None,
        scope: Scope::Platform,
    };
    token::store::insert(tx, &token, Origin::Made, pepper.token_mac(text.secret()))?;
    let change = Change::new(&TOKEN_CREATE, resource)
        .event("token.created", &token)
        .after(&token)
        .detail("owner", owner.id);
    tx.record(ctx, change)
}
