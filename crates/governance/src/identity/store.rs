//! The rows of users and service accounts.
//!
//! A local account has the empty issuer and itself as subject, so that one pair of unique indexes
//! holds for all: no two principals share issuer and name, or issuer and subject.

use falaj_base::{
    Error, Name, PrincipalId, PrincipalKind, ProjectId, Result, Scope, TenantId, Timestamp, code,
};
use falaj_store::db::{Migration, Row, Tx, params};

use super::principal::{Account, Class};

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "principals, tokens and sessions",
    sql: include_str!("migrations/0001_identity.sql"),
}];

/// The issuer of accounts that are our own.
pub(super) const LOCAL: &str = "";

const COLUMNS: &str = "p.id AS id, p.kind AS kind, p.name AS name, p.tenant AS tenant,
    t.name AS tenant_name, p.display_name AS display_name, p.issuer AS issuer,
    p.subject AS subject, p.disabled AS disabled, p.created_at AS created_at";
const FROM: &str = "FROM principal p LEFT JOIN tenant t ON t.id = p.tenant";

/// An account to be added.
#[derive(Clone, Debug)]
pub(super) struct NewAccount {
    pub(super) id: PrincipalId,
    pub(super) kind: PrincipalKind,
    pub(super) name: String,
    pub(super) tenant: Option<TenantId>,
    pub(super) display_name: Option<String>,
    pub(super) issuer: String,
    pub(super) subject: String,
    pub(super) password_hash: Option<String>,
}

pub(super) fn insert(tx: &mut Tx<'_>, new: &NewAccount) -> Result<Account> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO principal (id, kind, name, tenant, display_name, issuer, subject,
             password_hash, disabled, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9)",
        &params![
            new.id,
            new.kind.as_str(),
            &new.name,
            new.tenant,
            new.display_name.as_deref(),
            &new.issuer,
            &new.subject,
            new.password_hash.as_deref(),
            now
        ],
    )
    .map_err(|error| {
        if error.code() == &code::ALREADY_EXISTS {
            Error::already_exists("a principal named", &new.name)
        } else {
            error
        }
    })?;
    by_id(tx, new.id)?.ok_or_else(|| Error::internal("a new principal is not there"))
}

pub(super) fn by_id(tx: &mut Tx<'_>, id: PrincipalId) -> Result<Option<Account>> {
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE p.id = $1");
    tx.query_opt(&sql, &params![id])?.as_ref().map(account).transpose()
}

/// Finds an account by its id or, if it is local, by its name.
pub(super) fn find(tx: &mut Tx<'_>, given: &str) -> Result<Option<Account>> {
    if let Ok(id) = given.parse() {
        return by_id(tx, id);
    }
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE p.issuer = $1 AND p.name = $2");
    tx.query_opt(&sql, &params![LOCAL, given])?.as_ref().map(account).transpose()
}

/// Finds an account by what makes it one: issuer and subject.
pub(super) fn by_subject(tx: &mut Tx<'_>, issuer: &str, subject: &str) -> Result<Option<Account>> {
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE p.issuer = $1 AND p.subject = $2");
    tx.query_opt(&sql, &params![issuer, subject])?.as_ref().map(account).transpose()
}

/// A local user with its password hash, for signing in.
pub(super) fn sign_in_row(
    tx: &mut Tx<'_>,
    name: &str,
) -> Result<Option<(Account, Option<String>)>> {
    let sql = format!(
        "SELECT {COLUMNS}, p.password_hash AS password_hash {FROM}
         WHERE p.issuer = $1 AND p.name = $2 AND p.kind = $3"
    );
    let row = tx.query_opt(&sql, &params![LOCAL, name, PrincipalKind::User.as_str()])?;
    row.map(|row| Ok((account(&row)?, row.get("password_hash")?))).transpose()
}

/// Accounts of a class in order of their ids, after `after`.
pub(super) fn list(
    tx: &mut Tx<'_>,
    class: Class,
    home: Option<TenantId>,
    after: &str,
    limit: usize,
) -> Result<Vec<Account>> {
    // A principal of a tenant sees its own tenant only; the gate says so too, but the rows of
    // others need not even be read.
    let sql = format!(
        "SELECT {COLUMNS} {FROM}
         WHERE p.kind = $1 AND p.id > $2 AND (CAST($3 AS TEXT) IS NULL OR p.tenant = $3)
         ORDER BY p.id LIMIT $4"
    );
    let rows = tx.query(&sql, &params![class.kind().as_str(), after, home, limit])?;
    rows.iter().map(account).collect()
}

pub(super) fn update(tx: &mut Tx<'_>, account: &Account) -> Result<()> {
    tx.execute(
        "UPDATE principal SET display_name = $1, disabled = $2 WHERE id = $3",
        &params![account.display_name.as_deref(), account.disabled, account.id],
    )
    .map(drop)
}

pub(super) fn set_password(tx: &mut Tx<'_>, id: PrincipalId, hash: &str) -> Result<()> {
    tx.execute("UPDATE principal SET password_hash = $1 WHERE id = $2", &params![hash, id])
        .map(drop)
}

pub(super) fn delete(tx: &mut Tx<'_>, id: PrincipalId) -> Result<()> {
    tx.execute("DELETE FROM api_token WHERE owner = $1", &params![id])?;
    tx.execute("DELETE FROM browser_session WHERE principal = $1", &params![id])?;
    tx.execute("DELETE FROM principal WHERE id = $1", &params![id]).map(drop)
}

/// Removes the principals of a tenant that is being removed, with everything they hold.
pub fn forget_tenant(tx: &mut Tx<'_>, tenant: TenantId) -> Result<()> {
    let rows = tx.query("SELECT id FROM principal WHERE tenant = $1", &params![tenant])?;
    for row in rows {
        let id = row.get("id")?;
        crate::authz::store::forget_principal(tx, id)?;
        delete(tx, id)?;
    }
    tx.execute("DELETE FROM api_token WHERE tenant = $1", &params![tenant]).map(drop)
}

/// Removes the tokens that reach only into a project that is being removed.
pub fn forget_project(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    tx.execute("DELETE FROM api_token WHERE project = $1", &params![project]).map(drop)
}

pub(super) fn any_principal(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(tx.query_opt("SELECT id FROM principal ORDER BY id LIMIT 1", &[])?.is_some())
}

/// The place that a tenant's and a project's name stand for; none if either does not exist.
pub(super) fn place(
    tx: &mut Tx<'_>,
    tenant: Option<&Name>,
    project: Option<&Name>,
) -> Result<Option<Scope>> {
    let Some(tenant) = tenant else { return Ok(Some(Scope::Platform)) };
    let row = tx.query_opt("SELECT id FROM tenant WHERE name = $1", &params![tenant])?;
    let Some(row) = row else { return Ok(None) };
    let tenant: TenantId = row.get("id")?;
    let Some(project) = project else { return Ok(Some(Scope::Tenant(tenant))) };
    let sql = "SELECT id FROM project WHERE tenant = $1 AND name = $2";
    let row = tx.query_opt(sql, &params![tenant, project])?;
    row.map(|row| Ok(Scope::Project(tenant, row.get::<ProjectId>("id")?))).transpose()
}

fn account(row: &Row) -> Result<Account> {
    let kind: String = row.get("kind")?;
    let known = [PrincipalKind::User, PrincipalKind::ServiceAccount, PrincipalKind::Agent];
    let kind = known.into_iter().find(|known| known.as_str() == kind);
    let issuer: String = row.get("issuer")?;
    let external = issuer != LOCAL;
    Ok(Account {
        id: row.get("id")?,
        kind: kind.ok_or_else(|| Error::internal("a principal of unknown kind"))?,
        name: row.get("name")?,
        tenant: row.get("tenant_name")?,
        display_name: row.get("display_name")?,
        disabled: row.get("disabled")?,
        created_at: row.get::<Timestamp>("created_at")?,
        subject: external.then(|| row.get("subject")).transpose()?,
        issuer: external.then_some(issuer),
        home: row.get("tenant")?,
    })
}
