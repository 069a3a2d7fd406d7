//! Tenants and projects in the database.

use falaj_base::{Error, Name, ProjectId, Result, TenantId};
use falaj_store::db::{Migration, Row, Tx, params};

use super::project::Project;
use super::tenant::Tenant;

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "tenants and projects",
    sql: "
        CREATE TABLE tenant (
            id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, display_name TEXT,
            zone TEXT NOT NULL REFERENCES zone (name), created_at INTEGER NOT NULL);
        CREATE TABLE tenant_zone (
            tenant TEXT NOT NULL REFERENCES tenant (id),
            zone TEXT NOT NULL REFERENCES zone (name), PRIMARY KEY (tenant, zone));
        CREATE TABLE project (
            id TEXT PRIMARY KEY, tenant TEXT NOT NULL REFERENCES tenant (id), name TEXT NOT NULL,
            display_name TEXT, zone TEXT NOT NULL REFERENCES zone (name),
            classification TEXT, purpose TEXT, tags TEXT NOT NULL, created_at INTEGER NOT NULL,
            UNIQUE (tenant, name));",
}];

pub(super) fn insert_tenant(tx: &mut Tx<'_>, tenant: &Tenant) -> Result<()> {
    tx.execute(
        "INSERT INTO tenant (id, name, display_name, zone, created_at)
         VALUES ($1, $2, $3, $4, $5)",
        &params![
            tenant.id,
            &tenant.name,
            tenant.display_name.clone(),
            &tenant.zone,
            tenant.created_at
        ],
    )
    .map_err(|error| crate::residency::taken(error, "tenant", &tenant.name))?;
    set_zones(tx, tenant)
}

pub(super) fn update_tenant(tx: &mut Tx<'_>, tenant: &Tenant) -> Result<()> {
    tx.execute(
        "UPDATE tenant SET display_name = $2 WHERE id = $1",
        &params![tenant.id, tenant.display_name.clone()],
    )?;
    tx.execute("DELETE FROM tenant_zone WHERE tenant = $1", &params![tenant.id])?;
    set_zones(tx, tenant)
}

fn set_zones(tx: &mut Tx<'_>, tenant: &Tenant) -> Result<()> {
    for zone in &tenant.allowed_zones {
        tx.execute(
            "INSERT INTO tenant_zone (tenant, zone) VALUES ($1, $2)",
            &params![tenant.id, zone],
        )?;
    }
    Ok(())
}

pub(super) fn delete_tenant(tx: &mut Tx<'_>, id: TenantId) -> Result<()> {
    tx.execute("DELETE FROM tenant_zone WHERE tenant = $1", &params![id])?;
    tx.execute("DELETE FROM tenant WHERE id = $1", &params![id]).map(drop)
}

pub(super) fn find_tenant(tx: &mut Tx<'_>, name: &Name) -> Result<Option<Tenant>> {
    let rows = tx.query(
        "SELECT t.id, t.name, t.display_name, t.zone, t.created_at, z.zone AS allowed
         FROM tenant t LEFT JOIN tenant_zone z ON z.tenant = t.id
         WHERE t.name = $1 ORDER BY z.zone",
        &params![name],
    )?;
    let Some(first) = rows.first() else { return Ok(None) };
    let zones = rows.iter().filter_map(|row| row.get::<Option<Name>>("allowed").transpose());
    tenant(first, zones.collect::<Result<_>>()?).map(Some)
}

pub(super) fn list_tenants(tx: &mut Tx<'_>, after: &str, limit: usize) -> Result<Vec<Tenant>> {
    let rows = tx.query(
        "SELECT id, name, display_name, zone, created_at FROM tenant
         WHERE name > $1 ORDER BY name LIMIT $2",
        &params![after, limit],
    )?;
    let zones = "SELECT zone FROM tenant_zone WHERE tenant = $1 ORDER BY zone";
    rows.iter()
        .map(|row| {
            let allowed = tx.query(zones, &params![row.get::<TenantId>("id")?])?;
            tenant(row, allowed.iter().map(|row| row.get("zone")).collect::<Result<_>>()?)
        })
        .collect()
}

fn tenant(row: &Row, allowed_zones: Vec<Name>) -> Result<Tenant> {
    Ok(Tenant {
        id: row.get("id")?,
        name: row.get("name")?,
        display_name: row.get("display_name")?,
        zone: row.get("zone")?,
        allowed_zones,
        created_at: row.get("created_at")?,
    })
}

pub(super) fn insert_project(tx: &mut Tx<'_>, project: &Project) -> Result<()> {
    tx.execute(
        "INSERT INTO project
             (id, tenant, name, display_name, zone, classification, purpose, tags, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &params![
            project.id,
            project.tenant_id,
            &project.name,
            project.display_name.clone(),
            &project.zone,
            project.classification.clone(),
            project.purpose.clone(),
            tags_text(project)?,
            project.created_at
        ],
    )
    .map(drop)
    .map_err(|error| crate::residency::taken(error, "project", &project.name))
}

pub(super) fn update_project(tx: &mut Tx<'_>, project: &Project) -> Result<()> {
    tx.execute(
        "UPDATE project SET display_name = $2, classification = $3, purpose = $4, tags = $5
         WHERE id = $1",
        &params![
            project.id,
            project.display_name.clone(),
            project.classification.clone(),
            project.purpose.clone(),
            tags_text(project)?
        ],
    )
    .map(drop)
}

pub(super) fn delete_project(tx: &mut Tx<'_>, project: &Project) -> Result<()> {
    tx.execute("DELETE FROM project WHERE id = $1", &params![project.id]).map(drop)
}

const PROJECT: &str = "SELECT p.id, p.tenant AS tenant_id, t.name AS tenant, p.name, \
    p.display_name, p.zone, p.classification, p.purpose, p.tags, p.created_at \
    FROM project p JOIN tenant t ON t.id = p.tenant";

pub(super) fn find_project(tx: &mut Tx<'_>, tenant: &Name, name: &Name) -> Result<Option<Project>> {
    let sql = format!("{PROJECT} WHERE t.name = $1 AND p.name = $2");
    tx.query_opt(&sql, &params![tenant, name])?.as_ref().map(project).transpose()
}

pub(super) fn find_project_by_id(tx: &mut Tx<'_>, id: ProjectId) -> Result<Option<Project>> {
    tx.query_opt(&format!("{PROJECT} WHERE p.id = $1"), &params![id])?
        .as_ref()
        .map(project)
        .transpose()
}

pub(super) fn list_projects(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    after: &str,
    limit: usize,
) -> Result<Vec<Project>> {
    let sql = format!("{PROJECT} WHERE p.tenant = $1 AND p.name > $2 ORDER BY p.name LIMIT $3");
    tx.query(&sql, &params![tenant, after, limit])?.iter().map(project).collect()
}

fn project(row: &Row) -> Result<Project> {
    Ok(Project {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        tenant: row.get("tenant")?,
        name: row.get("name")?,
        display_name: row.get("display_name")?,
        zone: row.get("zone")?,
        classification: row.get("classification")?,
        purpose: row.get("purpose")?,
        tags: serde_json::from_str(&row.get::<String>("tags")?).map_err(Error::internal)?,
        created_at: row.get("created_at")?,
    })
}

fn tags_text(project: &Project) -> Result<String> {
    serde_json::to_string(&project.tags).map_err(Error::internal)
}
