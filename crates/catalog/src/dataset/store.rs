//! Datasets in the database.

use std::collections::BTreeSet;

use falaj_base::{Error, ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::dataset::{Dataset, DatasetId, Described};
use crate::name::DatasetName;
use crate::version::Origin;

/// Versions that something else became, which are looked at.
const MOST_REGISTERED: usize = 10_000;

/// `live` is empty while a dataset is there, and its id once it was deleted: so one name can be had
/// again. A file belongs to a dataset and is known by its digest; the versions that have it name it.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE catalog_dataset (
        id TEXT PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id), tenant TEXT NOT NULL,
        name TEXT NOT NULL, live TEXT NOT NULL, about TEXT NOT NULL, latest INTEGER NOT NULL,
        created_at INTEGER NOT NULL, created_by TEXT NOT NULL, updated_at INTEGER NOT NULL,
        deleted_at INTEGER, UNIQUE (project, name, live));
    CREATE INDEX catalog_dataset_deleted ON catalog_dataset (deleted_at);
    CREATE TABLE catalog_file (
        dataset TEXT NOT NULL REFERENCES catalog_dataset (id), sha256 TEXT NOT NULL,
        blob TEXT NOT NULL, statistics TEXT NOT NULL, size INTEGER NOT NULL, rows INTEGER NOT NULL,
        columns TEXT NOT NULL, stored_at INTEGER NOT NULL, PRIMARY KEY (dataset, sha256)) CLUSTERED;
    CREATE INDEX catalog_file_stored ON catalog_file (stored_at);
    CREATE TABLE catalog_version (
        dataset TEXT NOT NULL REFERENCES catalog_dataset (id), version INTEGER NOT NULL,
        verb TEXT NOT NULL, digest TEXT NOT NULL, parent INTEGER, rows INTEGER NOT NULL,
        size INTEGER NOT NULL, files INTEGER NOT NULL, columns TEXT NOT NULL,
        statistics TEXT NOT NULL, origin TEXT, message TEXT, created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL, removed_at INTEGER, PRIMARY KEY (dataset, version)) CLUSTERED;
    CREATE INDEX catalog_version_digest ON catalog_version (digest);
    CREATE TABLE catalog_version_file (
        dataset TEXT NOT NULL, version INTEGER NOT NULL, place INTEGER NOT NULL,
        sha256 TEXT NOT NULL, PRIMARY KEY (dataset, version, place)) CLUSTERED;
    CREATE INDEX catalog_version_file_sha256 ON catalog_version_file (dataset, sha256);
    CREATE TABLE catalog_tag (
        dataset TEXT NOT NULL REFERENCES catalog_dataset (id), name TEXT NOT NULL,
        version INTEGER NOT NULL, fixed INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL, PRIMARY KEY (dataset, name)) CLUSTERED;";

const COLUMNS: &str = "id, name, about, latest, created_at, created_by, updated_at";

/// What is held by whoever changes a dataset.
pub(crate) fn lock(tx: &mut Tx<'_>, id: &DatasetId) -> Result<()> {
    tx.lock(&format!("dataset/{id}"))
}

/// What is held by whoever makes files, by their SHA-256, those of a dataset, or takes them away from all
/// that have them. It comes before the lock of a dataset.
pub(crate) fn lock_files(tx: &mut Tx<'_>, project: ProjectId, files: &[&str]) -> Result<()> {
    let files: BTreeSet<_> = files.iter().collect();
    for sha256 in files {
        tx.lock(&format!("dataset-file/{project}/{sha256}"))?;
    }
    Ok(())
}

/// What is held by whoever makes a name one of a dataset, or no longer one.
pub(super) fn lock_names(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    tx.lock(&format!("datasets/{project}"))
}

pub(crate) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &DatasetName,
) -> Result<Option<Dataset>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_dataset WHERE project = $1 AND name = $2 AND live = ''"
    );
    tx.query_opt(&sql, &params![project, name.as_str()])?.as_ref().map(read).transpose()
}

/// The one of this name that was deleted last.
pub(super) fn find_deleted(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &DatasetName,
) -> Result<Option<Dataset>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_dataset WHERE project = $1 AND name = $2 AND live <> ''
         ORDER BY deleted_at DESC, id DESC LIMIT 1"
    );
    tx.query_opt(&sql, &params![project, name.as_str()])?.as_ref().map(read).transpose()
}

pub(super) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    after: &str,
    limit: usize,
) -> Result<Vec<Dataset>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_dataset WHERE project = $1 AND live = '' AND name > $2
         ORDER BY name LIMIT $3"
    );
    tx.query(&sql, &params![project, after, limit])?.iter().map(read).collect()
}

pub(super) fn count(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM catalog_dataset WHERE project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    (tenant, project): (TenantId, ProjectId),
    dataset: &Dataset,
) -> Result<()> {
    let about = serde_json::to_string(&dataset.about).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO catalog_dataset (id, project, tenant, name, live, about, latest, created_at,
             created_by, updated_at)
         VALUES ($1, $2, $3, $4, '', $5, 0, $6, $7, $6)",
        &params![
            &dataset.id,
            project,
            tenant,
            dataset.name.as_str(),
            about,
            dataset.created_at,
            &dataset.created_by
        ],
    )
    .map(drop)
}

pub(super) fn describe(tx: &mut Tx<'_>, id: &DatasetId, about: &Described) -> Result<bool> {
    let about = serde_json::to_string(about).map_err(Error::internal)?;
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE catalog_dataset SET about = $2, updated_at = $3 WHERE id = $1 AND live = ''",
        &params![id, about, now],
    )?;
    Ok(changed == 1)
}

/// Makes a version the latest; false if the dataset is gone.
pub(crate) fn advance(tx: &mut Tx<'_>, id: &DatasetId, latest: i64) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE catalog_dataset SET latest = $2, updated_at = $3 WHERE id = $1 AND live = ''",
        &params![id, latest, now],
    )?;
    Ok(changed == 1)
}

pub(super) fn mark_deleted(tx: &mut Tx<'_>, id: &DatasetId) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE catalog_dataset SET live = id, deleted_at = $2 WHERE id = $1 AND live = ''",
        &params![id, now],
    )?;
    Ok(changed == 1)
}

pub(super) fn restore(tx: &mut Tx<'_>, id: &DatasetId) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE catalog_dataset SET live = '', deleted_at = NULL WHERE id = $1 AND live <> ''",
        &params![id],
    )?;
    Ok(changed == 1)
}

/// Datasets that were deleted before a time.
pub(super) fn deleted_before(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<DatasetId>> {
    let rows = tx.query(
        "SELECT id FROM catalog_dataset WHERE deleted_at IS NOT NULL AND deleted_at < $1
         ORDER BY deleted_at LIMIT $2",
        &params![before, limit],
    )?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// A version that something else became: of what, and where.
pub(crate) type RegisteredRow = (Origin, DatasetName, i64, String, Described);

/// The versions of a project that something else became, the newest of each dataset first.
pub(crate) fn registered(tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<RegisteredRow>> {
    let rows = tx.query(
        "SELECT d.name, d.about, v.version, v.digest, v.origin
         FROM catalog_dataset AS d JOIN catalog_version AS v ON v.dataset = d.id
         WHERE d.project = $1 AND d.live = '' AND v.origin IS NOT NULL
         ORDER BY d.name, v.version DESC LIMIT $2",
        &params![project, MOST_REGISTERED],
    )?;
    let read = |row: &Row| {
        let (name, about): (String, String) = (row.get("name")?, row.get("about")?);
        let origin: String = row.get("origin")?;
        Ok((
            serde_json::from_str(&origin).map_err(Error::internal)?,
            DatasetName::new(name).map_err(Error::internal)?,
            row.get("version")?,
            row.get("digest")?,
            serde_json::from_str(&about).map_err(Error::internal)?,
        ))
    };
    rows.iter().map(read).collect()
}

/// The datasets of a project that have a file, and whether each is there: one that was deleted can
/// still be restored.
pub(crate) fn with_file(
    tx: &mut Tx<'_>,
    project: ProjectId,
    sha256: &str,
) -> Result<Vec<(Dataset, bool)>> {
    let sql = format!(
        "SELECT {COLUMNS}, live FROM catalog_dataset WHERE project = $1 AND id IN
             (SELECT dataset FROM catalog_file WHERE sha256 = $2)
         ORDER BY id"
    );
    let rows = tx.query(&sql, &params![project, sha256])?;
    rows.iter().map(|row| Ok((read(row)?, row.get::<String>("live")?.is_empty()))).collect()
}

/// All datasets, a page at a time, with what is to be kept of them.
pub(super) fn after(
    tx: &mut Tx<'_>,
    after: &str,
    limit: usize,
) -> Result<Vec<(Dataset, ProjectId)>> {
    let sql = format!(
        "SELECT {COLUMNS}, project FROM catalog_dataset WHERE live = '' AND id > $1
         ORDER BY id LIMIT $2"
    );
    let rows = tx.query(&sql, &params![after, limit])?;
    rows.iter().map(|row| Ok((read(row)?, row.get("project")?))).collect()
}

/// Removes the row itself; what it held must be gone.
pub(super) fn forget(tx: &mut Tx<'_>, id: &DatasetId) -> Result<()> {
    tx.execute("DELETE FROM catalog_dataset WHERE id = $1", &params![id]).map(drop)
}

fn read(row: &Row) -> Result<Dataset> {
    let about: String = row.get("about")?;
    let latest: i64 = row.get("latest")?;
    Ok(Dataset {
        name: DatasetName::new(row.get::<String>("name")?).map_err(Error::internal)?,
        about: serde_json::from_str(&about).map_err(Error::internal)?,
        latest: (latest > 0).then_some(latest),
        tags: Vec::new(),
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        updated_at: row.get("updated_at")?,
        id: row.get("id")?,
    })
}
