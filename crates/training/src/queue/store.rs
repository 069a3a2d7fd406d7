//! Queues in the database.

use falaj_base::{Error, Result, TenantId};
use falaj_store::db::{Row, Tx, params};

use super::queue::{Queue, QueueSet};
use crate::name::QueueName;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_queue (
        tenant TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL, PRIMARY KEY (tenant, name));";

/// Queues of all tenants that are looked at.
const MOST: usize = 1_000_000;

pub(super) fn lock(tx: &mut Tx<'_>, tenant: TenantId) -> Result<()> {
    tx.lock(&format!("training-queues/{tenant}"))
}

pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<(TenantId, Queue)>> {
    let sql = "SELECT tenant, name, spec, updated_at, updated_by FROM training_queue
               ORDER BY tenant, name LIMIT $1";
    let rows = tx.query(sql, &params![MOST])?;
    rows.iter().map(|row| Ok((row.get("tenant")?, read(row)?))).collect()
}

pub(super) fn of_tenant(tx: &mut Tx<'_>, tenant: TenantId) -> Result<Vec<Queue>> {
    let sql = "SELECT name, spec, updated_at, updated_by FROM training_queue WHERE tenant = $1
               ORDER BY name";
    tx.query(sql, &params![tenant])?.iter().map(read).collect()
}

pub(super) fn find(tx: &mut Tx<'_>, tenant: TenantId, name: &str) -> Result<Option<Queue>> {
    let sql = "SELECT name, spec, updated_at, updated_by FROM training_queue
               WHERE tenant = $1 AND name = $2";
    tx.query_opt(sql, &params![tenant, name])?.as_ref().map(read).transpose()
}

pub(super) fn put(tx: &mut Tx<'_>, tenant: TenantId, queue: &Queue) -> Result<()> {
    let spec = serde_json::to_string(&queue.set).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO training_queue (tenant, name, spec, updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (tenant, name) DO UPDATE SET spec = excluded.spec,
             updated_at = excluded.updated_at, updated_by = excluded.updated_by",
        &params![tenant, queue.name.as_str(), spec, queue.updated_at, &queue.updated_by],
    )
    .map(drop)
}

pub(super) fn delete(tx: &mut Tx<'_>, tenant: TenantId, name: &QueueName) -> Result<()> {
    let sql = "DELETE FROM training_queue WHERE tenant = $1 AND name = $2";
    tx.execute(sql, &params![tenant, name.as_str()]).map(drop)
}

fn read(row: &Row) -> Result<Queue> {
    let spec: String = row.get("spec")?;
    let set: QueueSet = serde_json::from_str(&spec).map_err(Error::internal)?;
    Ok(Queue {
        name: QueueName::new(row.get::<String>("name")?).map_err(Error::internal)?,
        set,
        held: None,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
    })
}
