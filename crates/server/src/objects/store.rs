//! Objects as rows.

use falaj_base::{ProjectId, Result, TenantId};
use falaj_store::db::{Migration, Row, Tx, Value, params};

use super::name::{ObjectName, after_prefix};
use super::object::ObjectRow;

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "object",
    sql: "
        CREATE TABLE object (
            id TEXT PRIMARY KEY, tenant TEXT NOT NULL REFERENCES tenant (id),
            project TEXT NOT NULL REFERENCES project (id), name TEXT NOT NULL,
            blob TEXT NOT NULL REFERENCES blob (id), content_type TEXT NOT NULL,
            size INTEGER NOT NULL, created_at INTEGER NOT NULL, UNIQUE (project, name));
        CREATE INDEX object_blob ON object (blob);",
}];

const COLUMNS: &str = "id, name, blob, content_type, size, created_at";

pub(super) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &ObjectName,
) -> Result<Option<ObjectRow>> {
    let sql = format!("SELECT {COLUMNS} FROM object WHERE project = $1 AND name = $2");
    tx.query_opt(&sql, &params![project, name.as_str()])?.as_ref().map(parse).transpose()
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    project: ProjectId,
    object: &ObjectRow,
) -> Result<()> {
    tx.execute(
        "INSERT INTO object (id, tenant, project, name, blob, content_type, size, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        &params![
            object.id,
            tenant,
            project,
            &object.name,
            object.blob,
            &object.content_type,
            object.size,
            object.created_at,
        ],
    )
    .map(drop)
}

pub(super) fn delete(tx: &mut Tx<'_>, object: &ObjectRow) -> Result<u64> {
    tx.execute("DELETE FROM object WHERE id = $1", &params![object.id])
}

/// The objects of a project whose names begin with `prefix`, after a given name.
pub(super) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<ObjectRow>> {
    // Both bounds are on the index: a list costs its page, however many objects there are.
    let (comparison, end) = match after_prefix(prefix) {
        Some(end) => ("AND name < $5", Some(end)),
        None => ("", None),
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM object WHERE project = $1 AND name > $2 AND name >= $3 {comparison}
         ORDER BY name LIMIT $4"
    );
    let mut values = params![project, after, prefix, limit].to_vec();
    values.extend(end.map(Value::from));
    tx.query(&sql, &values)?.iter().map(parse).collect()
}

fn parse(row: &Row) -> Result<ObjectRow> {
    Ok(ObjectRow {
        id: row.get("id")?,
        name: row.get("name")?,
        blob: row.get("blob")?,
        content_type: row.get("content_type")?,
        size: row.get("size")?,
        created_at: row.get("created_at")?,
    })
}
