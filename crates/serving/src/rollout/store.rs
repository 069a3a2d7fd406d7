//! Records of endpoints' traffic in the database.

use falaj_base::{EndpointId, Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::record::Record;

/// `judged` tells whether a strategy is at work. `round` says of which versions it is.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE endpoint_traffic (
        endpoint TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL,
        round INTEGER NOT NULL, judged INTEGER NOT NULL, record TEXT NOT NULL,
        updated_at INTEGER NOT NULL);
    CREATE INDEX endpoint_traffic_judged ON endpoint_traffic (judged);";

/// A record, and of which round it is.
pub(super) struct Kept {
    pub(super) round: i64,
    pub(super) record: Record,
}

/// What is held by whoever changes a record.
fn lock(endpoint: EndpointId) -> String {
    format!("traffic/{endpoint}")
}

/// The record of an endpoint, to be changed: nobody else does until this transaction ends.
pub(super) fn hold(tx: &mut Tx<'_>, endpoint: EndpointId) -> Result<Option<Kept>> {
    tx.lock(&lock(endpoint))?;
    find(tx, endpoint)
}

pub(super) fn find(tx: &mut Tx<'_>, endpoint: EndpointId) -> Result<Option<Kept>> {
    let sql = "SELECT round, record FROM endpoint_traffic WHERE endpoint = $1";
    tx.query_opt(sql, &params![endpoint])?.as_ref().map(read).transpose()
}

/// Endpoints whose strategies are at work: their projects and names.
pub(super) fn judged(tx: &mut Tx<'_>) -> Result<Vec<(ProjectId, String)>> {
    let sql = "SELECT project, name FROM endpoint_traffic WHERE judged = 1 ORDER BY endpoint";
    let rows = tx.query(sql, &params![])?;
    rows.iter().map(|row| Ok((row.get("project")?, row.get("name")?))).collect()
}

/// Writes a record that is held.
pub(super) fn put(
    tx: &mut Tx<'_>,
    (project, endpoint, name): (ProjectId, EndpointId, &str),
    kept: &Kept,
    now: Timestamp,
) -> Result<()> {
    let record = serde_json::to_string(&kept.record).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO endpoint_traffic (endpoint, project, name, round, judged, record, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (endpoint) DO UPDATE SET round = excluded.round, judged = excluded.judged,
             record = excluded.record, updated_at = excluded.updated_at",
        &params![endpoint, project, name, kept.round, kept.record.progress.is_some(), record, now],
    )
    .map(drop)
}

pub(crate) fn delete(tx: &mut Tx<'_>, endpoint: EndpointId) -> Result<()> {
    // Whoever is writing it would otherwise put it back.
    tx.lock(&lock(endpoint))?;
    tx.execute("DELETE FROM endpoint_traffic WHERE endpoint = $1", &params![endpoint]).map(drop)
}

fn read(row: &Row) -> Result<Kept> {
    let record: String = row.get("record")?;
    let record = serde_json::from_str(&record).map_err(Error::internal)?;
    Ok(Kept { round: row.get("round")?, record })
}
