//! The rows of roles and policies.
//!
//! Must hold: whoever writes here moves the [`crate::epoch::Epoch`] in the same transaction, and
//! does so first: its row is the lock under which rules that span rows ("one admin remains", "at
//! most so many") are checked.

use falaj_base::{
    BindingId, Error, Grant, Name, PolicyId, PrincipalId, PrincipalKind, ProjectId, Result, Role,
    Scope, TenantId, Timestamp,
};
use falaj_store::db::{Migration, Row, Tx, Value, params};

use super::bindings::{GroupRole, RoleBinding, Subject, TenantPolicy, scope};
use super::library::Texts;

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "roles and policies",
    sql: include_str!("migrations/0001_roles_and_policies.sql"),
}];

/// How many groups one query asks about.
const GROUPS_AT_ONCE: usize = 100;

/// Every role that a principal holds: its own, and those of its groups at `issuer`. Sorted, so
/// that equal rights are equal lists.
pub fn grants_of(
    tx: &mut Tx<'_>,
    principal: PrincipalId,
    groups: &[String],
    issuer: Option<&str>,
) -> Result<Vec<Grant>> {
    let rows = tx.query(
        "SELECT scope_tenant, scope_project, role FROM role_binding WHERE principal = $1",
        &params![principal],
    )?;
    let mut grants = rows
        .iter()
        .map(|row| grant(row, "scope_tenant", "scope_project"))
        .collect::<Result<Vec<_>>>()?;
    if let Some(issuer) = issuer {
        for groups in groups.chunks(GROUPS_AT_ONCE) {
            let places: Vec<_> = (2..groups.len() + 2).map(|n| format!("${n}")).collect();
            let sql = format!(
                "SELECT tenant, project, role FROM group_role WHERE issuer = $1 AND grp IN ({})",
                places.join(", "),
            );
            let mut values = vec![Value::from(issuer)];
            values.extend(groups.iter().map(Value::from));
            for row in tx.query(&sql, &values)? {
                grants.push(grant(&row, "tenant", "project")?);
            }
        }
    }
    grants.sort_unstable_by_key(|grant| (grant.scope.tenant(), grant.scope.project(), grant.role));
    grants.dedup();
    Ok(grants)
}

fn grant(row: &Row, tenant: &str, project: &str) -> Result<Grant> {
    Ok(Grant { scope: scope(row.get(tenant)?, row.get(project)?), role: row.get("role")? })
}

/// Binds `role`; an equal binding that exists already is left as it is. For the first start and
/// for tests: a person's request goes through the service.
pub fn bind(
    tx: &mut Tx<'_>,
    principal: PrincipalId,
    scope: Scope,
    role: Role,
    by: PrincipalId,
) -> Result<BindingId> {
    let id = BindingId::new();
    let now = tx.now();
    tx.execute(
        "INSERT INTO role_binding
             (id, principal, scope, scope_tenant, scope_project, role, created_at, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (principal, scope, role) DO NOTHING",
        &params![
            id.to_string(),
            principal,
            scope.to_string(),
            scope.tenant(),
            scope.project(),
            role,
            now,
            by
        ],
    )?;
    Ok(id)
}

/// Takes every role from a principal that is being removed.
pub fn forget_principal(tx: &mut Tx<'_>, principal: PrincipalId) -> Result<()> {
    tx.execute("DELETE FROM role_binding WHERE principal = $1", &params![principal]).map(drop)
}

/// Removes what was bound on a project that is being removed.
pub fn forget_project(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    tx.execute("DELETE FROM role_binding WHERE scope_project = $1", &params![project])?;
    tx.execute("DELETE FROM group_role WHERE project = $1", &params![project]).map(drop)
}

/// Removes what was bound on, and written by, a tenant that is being removed.
pub fn forget_tenant(tx: &mut Tx<'_>, tenant: TenantId) -> Result<()> {
    tx.execute("DELETE FROM role_binding WHERE scope_tenant = $1", &params![tenant])?;
    tx.execute("DELETE FROM group_role WHERE tenant = $1", &params![tenant])?;
    if tx.execute("DELETE FROM tenant_policy WHERE tenant = $1", &params![tenant])? > 0 {
        note_policy_change(tx, tenant)?;
    }
    Ok(())
}

/// How many enabled principals other than `except` are platform admins. Call it with the epoch
/// moved in the same transaction, before disabling or removing a principal.
pub fn other_platform_admins(tx: &mut Tx<'_>, except: PrincipalId) -> Result<u64> {
    tx.query_one(
        "SELECT COUNT(*) AS admins FROM role_binding b JOIN principal p ON p.id = b.principal
         WHERE b.scope = $1 AND b.role = $2 AND b.principal <> $3 AND p.disabled = 0",
        &params![Scope::Platform.to_string(), Role::Admin, except],
    )?
    .get("admins")
}

/// The principal with this id or, if no other has it, this name.
pub(super) fn find_subject(tx: &mut Tx<'_>, given: &str) -> Result<Option<Subject>> {
    let column = if given.parse::<PrincipalId>().is_ok() { "id" } else { "name" };
    let sql = format!(
        "SELECT id, kind, name, tenant, issuer, disabled FROM principal WHERE {column} = $1
         ORDER BY id LIMIT 2",
    );
    let rows = tx.query(&sql, &params![given])?;
    match rows.as_slice() {
        [] => Ok(None),
        [row] => subject(row).map(Some),
        _ => Err(Error::invalid("principal", given, "an id, where several have the same name")),
    }
}

fn subject(row: &Row) -> Result<Subject> {
    let kind: String = row.get("kind")?;
    let known = [PrincipalKind::User, PrincipalKind::ServiceAccount, PrincipalKind::Agent];
    let kind = known.into_iter().find(|known| known.as_str() == kind);
    Ok(Subject {
        id: row.get("id")?,
        kind: kind.ok_or_else(|| Error::internal("a principal of unknown kind"))?,
        name: row.get("name")?,
        home: row.get("tenant")?,
        issuer: row.get("issuer")?,
        disabled: row.get("disabled")?,
    })
}

/// The tenant and the project of these names, as far as they exist.
pub(super) fn find_place(
    tx: &mut Tx<'_>,
    tenant: &Name,
    project: Option<&Name>,
) -> Result<(Option<TenantId>, Option<ProjectId>)> {
    let row = tx.query_opt("SELECT id FROM tenant WHERE name = $1", &params![tenant])?;
    let Some(row) = row else { return Ok((None, None)) };
    let tenant: TenantId = row.get("id")?;
    let Some(project) = project else { return Ok((Some(tenant), None)) };
    let row = tx.query_opt(
        "SELECT id FROM project WHERE tenant = $1 AND name = $2",
        &params![tenant, project],
    )?;
    Ok((Some(tenant), row.map(|row| row.get("id")).transpose()?))
}

const BINDING: &str = "SELECT b.id, b.principal, p.name AS principal_name, b.role,
        b.scope_tenant, b.scope_project, t.name AS tenant_name, j.name AS project_name,
        b.created_at, b.created_by
    FROM role_binding b
    LEFT JOIN principal p ON p.id = b.principal
    LEFT JOIN tenant t ON t.id = b.scope_tenant
    LEFT JOIN project j ON j.id = b.scope_project";

fn binding(row: &Row) -> Result<RoleBinding> {
    Ok(RoleBinding {
        id: row.get::<String>("id")?.parse()?,
        principal: row.get("principal")?,
        principal_name: row.get::<Option<String>>("principal_name")?.unwrap_or_default(),
        role: row.get("role")?,
        tenant: row.get("tenant_name")?,
        project: row.get("project_name")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        scope: scope(row.get("scope_tenant")?, row.get("scope_project")?),
    })
}

pub(super) fn find_binding(tx: &mut Tx<'_>, id: BindingId) -> Result<Option<RoleBinding>> {
    let sql = format!("{BINDING} WHERE b.id = $1");
    tx.query_opt(&sql, &params![id.to_string()])?.as_ref().map(binding).transpose()
}

/// Bindings after a key, in order; of one tenant if `within` names one.
pub(super) fn list_bindings(
    tx: &mut Tx<'_>,
    within: Option<TenantId>,
    of: Option<PrincipalId>,
    after: &str,
    limit: usize,
) -> Result<Vec<RoleBinding>> {
    let sql = format!(
        "{BINDING} WHERE b.id > $1 AND ($2 = '' OR b.scope_tenant = $2)
             AND ($3 = '' OR b.principal = $3) ORDER BY b.id LIMIT $4",
    );
    let text = |id: Option<String>| id.unwrap_or_default();
    let within = text(within.map(|id| id.to_string()));
    let of = text(of.map(|id| id.to_string()));
    tx.query(&sql, &params![after, within, of, limit])?.iter().map(binding).collect()
}

/// How many roles are bound on a tenant, or on the platform itself.
pub(super) fn count_bindings(tx: &mut Tx<'_>, tenant: Option<TenantId>) -> Result<usize> {
    let count = |tx: &mut Tx<'_>, table: &str, column: &str| -> Result<usize> {
        let (filter, values) = match tenant {
            Some(tenant) => (format!("{column} = $1"), params![tenant].to_vec()),
            None => (format!("{column} IS NULL"), Vec::new()),
        };
        let sql = format!("SELECT COUNT(*) AS bound FROM {table} WHERE {filter}");
        tx.query_one(&sql, &values)?.get("bound")
    };
    Ok(count(tx, "role_binding", "scope_tenant")? + count(tx, "group_role", "tenant")?)
}

pub(super) fn insert_binding(tx: &mut Tx<'_>, new: &RoleBinding) -> Result<()> {
    tx.execute(
        "INSERT INTO role_binding
             (id, principal, scope, scope_tenant, scope_project, role, created_at, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        &params![
            new.id.to_string(),
            new.principal,
            new.scope.to_string(),
            new.scope.tenant(),
            new.scope.project(),
            new.role,
            new.created_at,
            new.created_by
        ],
    )
    .map(drop)
}

pub(super) fn delete_binding(tx: &mut Tx<'_>, id: BindingId) -> Result<u64> {
    tx.execute("DELETE FROM role_binding WHERE id = $1", &params![id.to_string()])
}

const GROUP_ROLE: &str = "SELECT g.id, g.issuer, g.grp, g.role, g.tenant, g.project,
        t.name AS tenant_name, j.name AS project_name, g.created_at, g.created_by
    FROM group_role g
    LEFT JOIN tenant t ON t.id = g.tenant
    LEFT JOIN project j ON j.id = g.project";

fn group_role(row: &Row) -> Result<GroupRole> {
    Ok(GroupRole {
        id: row.get::<String>("id")?.parse()?,
        issuer: row.get("issuer")?,
        group: row.get("grp")?,
        role: row.get("role")?,
        tenant: row.get::<Option<String>>("tenant_name")?.unwrap_or_default(),
        project: row.get("project_name")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        scope: scope(row.get("tenant")?, row.get("project")?),
    })
}

pub(super) fn find_group_role(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    id: BindingId,
) -> Result<Option<GroupRole>> {
    let sql = format!("{GROUP_ROLE} WHERE g.tenant = $1 AND g.id = $2");
    tx.query_opt(&sql, &params![tenant, id.to_string()])?.as_ref().map(group_role).transpose()
}

pub(super) fn list_group_roles(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    after: &str,
    limit: usize,
) -> Result<Vec<GroupRole>> {
    let sql = format!("{GROUP_ROLE} WHERE g.tenant = $1 AND g.id > $2 ORDER BY g.id LIMIT $3");
    tx.query(&sql, &params![tenant, after, limit])?.iter().map(group_role).collect()
}

pub(super) fn insert_group_role(tx: &mut Tx<'_>, tenant: TenantId, new: &GroupRole) -> Result<()> {
    tx.execute(
        "INSERT INTO group_role
             (id, tenant, issuer, grp, scope, project, role, created_at, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &params![
            new.id.to_string(),
            tenant,
            &new.issuer,
            &new.group,
            new.scope.to_string(),
            new.scope.project(),
            new.role,
            new.created_at,
            new.created_by
        ],
    )
    .map(drop)
}

pub(super) fn delete_group_role(tx: &mut Tx<'_>, id: BindingId) -> Result<u64> {
    tx.execute("DELETE FROM group_role WHERE id = $1", &params![id.to_string()])
}

const POLICY: &str = "SELECT y.id, y.tenant, t.name AS tenant_name, y.name, y.source,
        y.statements, y.created_at, y.updated_at, y.updated_by
    FROM tenant_policy y LEFT JOIN tenant t ON t.id = y.tenant";

fn policy(row: &Row) -> Result<TenantPolicy> {
    Ok(TenantPolicy {
        id: row.get("id")?,
        name: row.get("name")?,
        tenant: row.get::<Option<String>>("tenant_name")?.unwrap_or_default(),
        source: row.get("source")?,
        statements: row.get("statements")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
        tenant_id: row.get("tenant")?,
    })
}

pub(super) fn find_policy(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    name: &Name,
) -> Result<Option<TenantPolicy>> {
    let sql = format!("{POLICY} WHERE y.tenant = $1 AND y.name = $2");
    tx.query_opt(&sql, &params![tenant, name])?.as_ref().map(policy).transpose()
}

pub(super) fn list_policies(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    after: &str,
    limit: usize,
) -> Result<Vec<TenantPolicy>> {
    let sql = format!("{POLICY} WHERE y.tenant = $1 AND y.name > $2 ORDER BY y.name LIMIT $3");
    tx.query(&sql, &params![tenant, after, limit])?.iter().map(policy).collect()
}

/// What all policies other than this one take up: statements of its tenant, bytes of all tenants.
pub(super) fn other_policies(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    name: &Name,
) -> Result<(usize, usize)> {
    let statements = tx.query_one(
        "SELECT CAST(COALESCE(SUM(statements), 0) AS BIGINT) AS statements FROM tenant_policy
         WHERE tenant = $1 AND name <> $2",
        &params![tenant, name],
    )?;
    let bytes = tx.query_one(
        "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(source)), 0) AS BIGINT) AS bytes
         FROM tenant_policy
         WHERE NOT (tenant = $1 AND name = $2)",
        &params![tenant, name],
    )?;
    Ok((statements.get("statements")?, bytes.get("bytes")?))
}

pub(super) fn put_policy(tx: &mut Tx<'_>, new: &TenantPolicy) -> Result<()> {
    tx.execute(
        "INSERT INTO tenant_policy
             (id, tenant, name, source, statements, created_at, updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (tenant, name) DO UPDATE SET source = excluded.source,
             statements = excluded.statements, updated_at = excluded.updated_at,
             updated_by = excluded.updated_by",
        &params![
            new.id,
            new.tenant_id,
            &new.name,
            &new.source,
            new.statements,
            new.created_at,
            new.updated_at,
            new.updated_by
        ],
    )?;
    note_policy_change(tx, new.tenant_id)
}

pub(super) fn delete_policy(tx: &mut Tx<'_>, tenant: TenantId, name: &str) -> Result<u64> {
    let deleted = tx.execute(
        "DELETE FROM tenant_policy WHERE tenant = $1 AND name = $2",
        &params![tenant, name],
    )?;
    note_policy_change(tx, tenant)?;
    Ok(deleted)
}

/// Numbers the change, so that a server can ask for what changed since it last looked. The
/// counter's row stays locked until commit, so the numbers become visible in order.
fn note_policy_change(tx: &mut Tx<'_>, tenant: TenantId) -> Result<()> {
    let row = tx.query_one(
        "UPDATE policy_revision SET value = value + 1 WHERE id = $1 RETURNING value",
        &params![1],
    )?;
    let revision: u64 = row.get("value")?;
    tx.execute(
        "INSERT INTO tenant_policy_revision (tenant, revision) VALUES ($1, $2)
         ON CONFLICT (tenant) DO UPDATE SET revision = excluded.revision",
        &params![tenant, revision],
    )
    .map(drop)
}

/// The policies of every tenant whose policies changed after `revision`.
pub(super) fn policies_changed_since(
    tx: &mut Tx<'_>,
    revision: u64,
) -> Result<Vec<(TenantId, Texts)>> {
    let changed = tx.query(
        "SELECT tenant, revision FROM tenant_policy_revision WHERE revision > $1",
        &params![revision],
    )?;
    let mut all = Vec::with_capacity(changed.len());
    for row in changed {
        let tenant: TenantId = row.get("tenant")?;
        let policies = tx
            .query(
                "SELECT name, source FROM tenant_policy WHERE tenant = $1 ORDER BY name",
                &params![tenant],
            )?
            .iter()
            .map(|row| Ok((row.get("name")?, row.get("source")?)))
            .collect::<Result<Vec<(String, String)>>>()?;
        all.push((tenant, Texts { revision: row.get("revision")?, policies }));
    }
    Ok(all)
}

/// A policy about to be stored.
pub(super) fn new_policy(
    tenant: TenantId,
    name: &Name,
    source: String,
    statements: u32,
    by: PrincipalId,
    now: Timestamp,
) -> TenantPolicy {
    TenantPolicy {
        id: PolicyId::new(),
        name: name.to_string(),
        tenant: String::new(),
        source,
        statements,
        created_at: now,
        updated_at: now,
        updated_by: by,
        tenant_id: tenant,
    }
}
