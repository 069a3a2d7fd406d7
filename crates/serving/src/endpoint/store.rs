//! Endpoints in the database.

use falaj_base::{EndpointId, Error, Name, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::endpoint::Endpoint;
use super::spec::Spec;

/// `follows` tells whether an alias decides what runs. Row 2 of `epoch` moves with every change.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE endpoint (
        id TEXT PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id), name TEXT NOT NULL,
        revision INTEGER NOT NULL, spec TEXT NOT NULL, running TEXT NOT NULL,
        paused INTEGER NOT NULL, follows INTEGER NOT NULL, created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL, updated_at INTEGER NOT NULL, updated_by TEXT NOT NULL,
        UNIQUE (project, name));
    CREATE INDEX endpoint_follows ON endpoint (follows);
    CREATE TABLE endpoint_revision (
        endpoint TEXT NOT NULL, revision INTEGER NOT NULL, spec TEXT NOT NULL, at INTEGER NOT NULL,
        author TEXT NOT NULL, PRIMARY KEY (endpoint, revision)) CLUSTERED;
    INSERT INTO epoch (id, value) VALUES (2, 1);";

/// The row of `epoch` that moves with every change of an endpoint.
pub(crate) const EPOCH: i64 = 2;

const COLUMNS: &str = "id, name, revision, spec, running, paused, created_at, created_by, \
     updated_at, updated_by";

/// What is held by whoever changes an endpoint of this name.
pub(crate) fn lock(project: ProjectId, name: &Name) -> String {
    format!("endpoint/{project}/{name}")
}

pub(crate) fn find(tx: &mut Tx<'_>, project: ProjectId, name: &str) -> Result<Option<Endpoint>> {
    let sql = format!("SELECT {COLUMNS} FROM endpoint WHERE project = $1 AND name = $2");
    tx.query_opt(&sql, &params![project, name])?.as_ref().map(read).transpose()
}

/// Endpoints after a name, in the order of their names.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    after: &str,
    limit: usize,
) -> Result<Vec<Endpoint>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM endpoint WHERE project = $1 AND name > $2 ORDER BY name LIMIT $3"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.query(&sql, &params![project, after, limit])?.iter().map(read).collect()
}

pub(super) fn count(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM endpoint WHERE project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

/// Those that follow an alias, with their projects.
pub(super) fn following(tx: &mut Tx<'_>) -> Result<Vec<(ProjectId, Endpoint)>> {
    let sql = format!("SELECT project, {COLUMNS} FROM endpoint WHERE follows = 1 ORDER BY id");
    let rows = tx.query(&sql, &params![])?;
    rows.iter().map(|row| Ok((row.get("project")?, read(row)?))).collect()
}

/// Writes an endpoint as it is now.
pub(super) fn put(tx: &mut Tx<'_>, project: ProjectId, endpoint: &Endpoint) -> Result<()> {
    let json = |value: serde_json::Result<String>| value.map_err(Error::internal);
    tx.execute(
        "INSERT INTO endpoint (id, project, name, revision, spec, running, paused, follows,
             created_at, created_by, updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, spec = excluded.spec,
             running = excluded.running, paused = excluded.paused, follows = excluded.follows,
             updated_at = excluded.updated_at, updated_by = excluded.updated_by",
        &params![
            endpoint.id,
            project,
            endpoint.name.as_str(),
            endpoint.revision,
            json(serde_json::to_string(&endpoint.spec))?,
            json(serde_json::to_string(&endpoint.running))?,
            endpoint.paused,
            endpoint.spec.follows(),
            endpoint.created_at,
            &endpoint.created_by,
            endpoint.updated_at,
            &endpoint.updated_by,
        ],
    )
    .map(drop)
}

/// Keeps what was asked for, to be gone back to.
pub(super) fn put_revision(tx: &mut Tx<'_>, endpoint: &Endpoint) -> Result<()> {
    let spec = serde_json::to_string(&endpoint.spec).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO endpoint_revision (endpoint, revision, spec, at, author)
         VALUES ($1, $2, $3, $4, $5)",
        &params![endpoint.id, endpoint.revision, spec, endpoint.updated_at, &endpoint.updated_by],
    )
    .map(drop)
}

/// A revision as it was asked for, when and by whom.
pub(super) struct Kept {
    pub(super) revision: i64,
    pub(super) spec: Spec,
    pub(super) at: Timestamp,
    pub(super) by: String,
}

/// The last revisions of an endpoint before one, newest first.
pub(super) fn revisions(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    before: i64,
    limit: usize,
) -> Result<Vec<Kept>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.query(
        "SELECT revision, spec, at, author FROM endpoint_revision
         WHERE endpoint = $1 AND revision < $2 ORDER BY revision DESC LIMIT $3",
        &params![endpoint, before, limit],
    )?;
    rows.iter()
        .map(|row| {
            let spec: String = row.get("spec")?;
            Ok(Kept {
                revision: row.get("revision")?,
                spec: serde_json::from_str(&spec).map_err(Error::internal)?,
                at: row.get("at")?,
                by: row.get("author")?,
            })
        })
        .collect()
}

pub(super) fn delete(tx: &mut Tx<'_>, endpoint: EndpointId) -> Result<()> {
    tx.execute("DELETE FROM endpoint_revision WHERE endpoint = $1", &params![endpoint])?;
    tx.execute("DELETE FROM endpoint WHERE id = $1", &params![endpoint]).map(drop)
}

fn read(row: &Row) -> Result<Endpoint> {
    let spec: String = row.get("spec")?;
    let running: String = row.get("running")?;
    Ok(Endpoint {
        id: row.get("id")?,
        name: row.get("name")?,
        revision: row.get("revision")?,
        spec: serde_json::from_str(&spec).map_err(Error::internal)?,
        running: serde_json::from_str(&running).map_err(Error::internal)?,
        paused: row.get("paused")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
    })
}
