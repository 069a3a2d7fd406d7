//! The rows of API tokens.

use falaj_base::{PrincipalId, Result, Scope, TenantId, Timestamp, TokenId};
use falaj_store::db::{Row, Tx, params};

use super::{Origin, Token};

const COLUMNS: &str = "k.id AS id, k.owner AS owner, o.name AS owner_name, o.tenant AS owner_home,
    k.tenant AS tenant, t.name AS tenant_name, k.project AS project, j.name AS project_name,
    k.role AS role, k.description AS description, k.created_at AS created_at,
    k.expires_at AS expires_at, k.last_used_at AS last_used_at, k.revoked_at AS revoked_at";
const FROM: &str = "FROM api_token k JOIN principal o ON o.id = k.owner
    LEFT JOIN tenant t ON t.id = k.tenant LEFT JOIN project j ON j.id = k.project";

pub(in crate::identity) fn insert(
    tx: &mut Tx<'_>,
    token: &Token,
    origin: Origin,
    secret_mac: Vec<u8>,
) -> Result<()> {
    tx.execute(
        "INSERT INTO api_token (id, owner, origin, tenant, project, role, description, secret_mac,
             created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &params![
            token.id,
            token.owner_id,
            origin.as_str(),
            token.scope.tenant(),
            token.scope.project(),
            token.role,
            token.description.as_deref(),
            secret_mac,
            token.created_at,
            token.expires_at
        ],
    )
    .map(drop)
}

pub(in crate::identity) fn find(tx: &mut Tx<'_>, id: TokenId) -> Result<Option<Token>> {
    let sql = format!("SELECT {COLUMNS} {FROM} WHERE k.id = $1");
    tx.query_opt(&sql, &params![id])?.as_ref().map(token).transpose()
}

/// A token with what proves it, for authentication.
pub(in crate::identity) fn with_mac(
    tx: &mut Tx<'_>,
    id: TokenId,
) -> Result<Option<(Token, Vec<u8>)>> {
    let sql = format!("SELECT {COLUMNS}, k.secret_mac AS secret_mac {FROM} WHERE k.id = $1");
    let row = tx.query_opt(&sql, &params![id])?;
    row.map(|row| Ok((token(&row)?, row.get("secret_mac")?))).transpose()
}

/// Tokens in order of their ids, after `after`: those of `owner`, and those of the principals of
/// `home` (all, for the platform's own staff).
pub(in crate::identity) fn list(
    tx: &mut Tx<'_>,
    owner: PrincipalId,
    home: Option<TenantId>,
    after: &str,
    limit: usize,
) -> Result<Vec<Token>> {
    let sql = format!(
        "SELECT {COLUMNS} {FROM}
         WHERE k.id > $1 AND (k.owner = $2 OR CAST($3 AS TEXT) IS NULL OR o.tenant = $3)
         ORDER BY k.id LIMIT $4"
    );
    let rows = tx.query(&sql, &params![after, owner, home, limit])?;
    rows.iter().map(token).collect()
}

/// How many tokens of an owner still work.
pub(in crate::identity) fn count_live(
    tx: &mut Tx<'_>,
    owner: PrincipalId,
    now: Timestamp,
) -> Result<usize> {
    tx.query_one(
        "SELECT COUNT(*) AS live FROM api_token
         WHERE owner = $1 AND revoked_at IS NULL AND expires_at > $2",
        &params![owner, now],
    )?
    .get("live")
}

/// Revokes a token; one that was revoked before keeps its time, and false is told of it.
pub(in crate::identity) fn revoke(tx: &mut Tx<'_>, id: TokenId, now: Timestamp) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE api_token SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL",
        &params![now, id],
    )?;
    Ok(changed == 1)
}

/// Lets a token of an origin work until a later time, if it works now.
pub(in crate::identity) fn renew(
    tx: &mut Tx<'_>,
    id: TokenId,
    origin: Origin,
    (now, until): (Timestamp, Timestamp),
) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE api_token SET expires_at = $1 WHERE id = $2 AND origin = $3
             AND revoked_at IS NULL AND expires_at > $4 AND expires_at < $1",
        &params![until, id, origin.as_str(), now],
    )?;
    Ok(changed == 1)
}

pub(in crate::identity) fn is_of(tx: &mut Tx<'_>, id: TokenId, origin: Origin) -> Result<bool> {
    let sql = "SELECT COUNT(*) AS n FROM api_token WHERE id = $1 AND origin = $2";
    Ok(tx.query_one(sql, &params![id, origin.as_str()])?.get::<u64>("n")? > 0)
}

/// Revokes what an owner got by signing in: a changed password must end every sign-in made with
/// the old one. The token that changed it may be kept.
pub(in crate::identity) fn revoke_sign_ins(
    tx: &mut Tx<'_>,
    owner: PrincipalId,
    kept: Option<TokenId>,
    now: Timestamp,
) -> Result<()> {
    let kept = kept.map(|token| token.to_string()).unwrap_or_default();
    tx.execute(
        "UPDATE api_token SET revoked_at = $1
         WHERE owner = $2 AND origin = $3 AND id <> $4 AND revoked_at IS NULL",
        &params![now, owner, Origin::SignIn.as_str(), kept],
    )
    .map(drop)
}

/// Notes when tokens were last used; an older time never replaces a newer one.
pub(in crate::identity) fn note_uses(tx: &mut Tx<'_>, uses: &[(TokenId, Timestamp)]) -> Result<()> {
    for (id, at) in uses {
        tx.execute(
            "UPDATE api_token SET last_used_at = $1
             WHERE id = $2 AND (last_used_at IS NULL OR last_used_at < $1)",
            &params![*at, id],
        )?;
    }
    Ok(())
}

/// Removes tokens that have been dead since before `before`.
pub(in crate::identity) fn purge(tx: &mut Tx<'_>, before: Timestamp) -> Result<u64> {
    tx.execute("DELETE FROM api_token WHERE expires_at < $1 OR revoked_at < $1", &params![before])
}

fn token(row: &Row) -> Result<Token> {
    let scope = match (row.get("tenant")?, row.get("project")?) {
        (None, _) => Scope::Platform,
        (Some(tenant), None) => Scope::Tenant(tenant),
        (Some(tenant), Some(project)) => Scope::Project(tenant, project),
    };
    Ok(Token {
        id: row.get("id")?,
        owner: row.get("owner_name")?,
        owner_id: row.get("owner")?,
        owner_home: row.get("owner_home")?,
        tenant: row.get("tenant_name")?,
        project: row.get("project_name")?,
        scope,
        role: row.get("role")?,
        description: row.get("description")?,
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
        last_used_at: row.get("last_used_at")?,
        revoked_at: row.get("revoked_at")?,
    })
}
