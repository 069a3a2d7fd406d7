//! Versions, files and tags in the database.

use std::collections::HashMap;

use falaj_base::{BlobId, Error, Result, Timestamp};
use falaj_store::db::{Row, Tx, Value, params};

use super::tag::Tag;
use super::version::{Manifest, Origin, Verb, Version, VersionFile, Which};
use crate::dataset::DatasetId;
use crate::name::TagName;

const COLUMNS: &str = "version, verb, digest, parent, rows, size, files, columns, statistics, \
     origin, message, created_at, created_by, removed_at";

/// Files that are asked for at a time.
const AT_ONCE: usize = 500;

/// The version that is meant; none if there is none.
pub(crate) fn find(tx: &mut Tx<'_>, id: &DatasetId, which: &Which) -> Result<Option<Version>> {
    let select = format!("SELECT {COLUMNS} FROM catalog_version WHERE dataset = $1");
    let row = match which {
        Which::Latest => {
            let sql = format!("{select} ORDER BY version DESC LIMIT 1");
            tx.query_opt(&sql, &params![id])?
        }
        Which::Number(number) => {
            tx.query_opt(&format!("{select} AND version = $2"), &params![id, *number])?
        }
        Which::Tag(tag) => {
            let sql = format!(
                "{select} AND version =
                     (SELECT version FROM catalog_tag WHERE dataset = $1 AND name = $2)"
            );
            tx.query_opt(&sql, &params![id, tag.as_str()])?
        }
        Which::At(at) => {
            let sql = format!("{select} AND created_at <= $2 ORDER BY version DESC LIMIT 1");
            tx.query_opt(&sql, &params![id, *at])?
        }
    };
    let Some(mut version) = row.as_ref().map(read).transpose()? else { return Ok(None) };
    version.tags = tags_of(tx, id, version.version)?;
    Ok(Some(version))
}

/// The history, the newest first, before a version.
pub(super) fn list(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    before: i64,
    limit: usize,
) -> Result<Vec<Version>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_version WHERE dataset = $1 AND version < $2
         ORDER BY version DESC LIMIT $3"
    );
    let rows = tx.query(&sql, &params![id, before, limit])?;
    let mut versions = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    let mut named: HashMap<i64, Vec<TagName>> = HashMap::new();
    for tag in tags(tx, id)? {
        named.entry(tag.version).or_default().push(tag.name);
    }
    for version in &mut versions {
        version.tags = named.remove(&version.version).unwrap_or_default();
    }
    Ok(versions)
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    new: &Version,
    manifest: &Manifest,
) -> Result<()> {
    let columns = serde_json::to_string(&manifest.columns).map_err(Error::internal)?;
    let origin = new.origin.as_ref().map(serde_json::to_string).transpose();
    let origin = origin.map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO catalog_version (dataset, version, verb, digest, parent, rows, size, files,
             columns, statistics, origin, message, created_at, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        &params![
            id,
            new.version,
            new.made_by.as_str(),
            &new.digest,
            new.parent,
            new.rows,
            new.size,
            new.files,
            columns,
            new.statistics,
            origin,
            new.message.as_ref(),
            new.created_at,
            &new.created_by
        ],
    )?;
    let places = (0_i64..).zip(&manifest.files);
    let files = places.map(|(place, file)| params![id, new.version, place, &file.sha256].to_vec());
    tx.execute_many(
        "INSERT INTO catalog_version_file (dataset, version, place, sha256)
         VALUES ($1, $2, $3, $4)",
        files,
    )
    .map(drop)
}

/// The files of a version, in their order.
pub(crate) fn files_of(tx: &mut Tx<'_>, id: &DatasetId, version: i64) -> Result<Vec<VersionFile>> {
    let rows = tx.query(
        "SELECT f.sha256, f.rows, f.size, f.columns, f.blob, f.statistics
         FROM catalog_version_file AS v JOIN catalog_file AS f
             ON f.dataset = v.dataset AND f.sha256 = v.sha256
         WHERE v.dataset = $1 AND v.version = $2 ORDER BY v.place",
        &params![id, version],
    )?;
    rows.iter().map(read_file).collect()
}

/// Those of these files that the dataset has.
pub(crate) fn known_files(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    digests: &[String],
) -> Result<HashMap<String, VersionFile>> {
    let mut found = HashMap::with_capacity(digests.len());
    for some in digests.chunks(AT_ONCE) {
        let places: Vec<String> = (2..some.len() + 2).map(|place| format!("${place}")).collect();
        let sql = format!(
            "SELECT sha256, rows, size, columns, blob, statistics FROM catalog_file
             WHERE dataset = $1 AND sha256 IN ({})",
            places.join(", ")
        );
        let values: Vec<Value> =
            std::iter::once(Value::from(id)).chain(some.iter().map(Value::from)).collect();
        for row in tx.query(&sql, &values)? {
            let file = read_file(&row)?;
            found.insert(file.sha256.clone(), file);
        }
    }
    Ok(found)
}

pub(crate) fn insert_file(tx: &mut Tx<'_>, id: &DatasetId, file: &VersionFile) -> Result<()> {
    let columns = serde_json::to_string(&file.columns).map_err(Error::internal)?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO catalog_file (dataset, sha256, blob, statistics, size, rows, columns, stored_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (dataset, sha256) DO UPDATE SET stored_at = excluded.stored_at",
        &params![
            id,
            &file.sha256,
            file.blob,
            file.statistics,
            file.size,
            file.rows,
            columns,
            now
        ],
    )
    .map(drop)
}

/// Files of a dataset that no version has and that were stored before a time.
pub(crate) fn loose_files(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<VersionFile>> {
    let rows = tx.query(
        "SELECT sha256, rows, size, columns, blob, statistics FROM catalog_file AS f
         WHERE dataset = $1 AND stored_at < $2 AND NOT EXISTS
             (SELECT 1 FROM catalog_version_file AS v
              WHERE v.dataset = f.dataset AND v.sha256 = f.sha256)
         ORDER BY sha256 LIMIT $3",
        &params![id, before, limit],
    )?;
    rows.iter().map(read_file).collect()
}

/// Datasets that have files which were stored before a time and which no version has.
pub(crate) fn with_loose_files(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<DatasetId>> {
    let rows = tx.query(
        "SELECT DISTINCT dataset FROM catalog_file AS f WHERE stored_at < $1 AND NOT EXISTS
             (SELECT 1 FROM catalog_version_file AS v
              WHERE v.dataset = f.dataset AND v.sha256 = f.sha256)
         ORDER BY dataset LIMIT $2",
        &params![before, limit],
    )?;
    rows.iter().map(|row| row.get("dataset")).collect()
}

pub(crate) fn forget_file(tx: &mut Tx<'_>, id: &DatasetId, sha256: &str) -> Result<()> {
    tx.execute("DELETE FROM catalog_file WHERE dataset = $1 AND sha256 = $2", &params![id, sha256])
        .map(drop)
}

/// Takes the files away from a version; the row stays. None if it had none any more.
pub(crate) fn remove(tx: &mut Tx<'_>, id: &DatasetId, version: i64) -> Result<bool> {
    let now = tx.now();
    let marked = tx.execute(
        "UPDATE catalog_version SET removed_at = $3
         WHERE dataset = $1 AND version = $2 AND removed_at IS NULL",
        &params![id, version, now],
    )?;
    tx.execute(
        "DELETE FROM catalog_version_file WHERE dataset = $1 AND version = $2",
        &params![id, version],
    )?;
    Ok(marked == 1)
}

/// The versions that have a file, the newest first.
pub(crate) fn with_file(tx: &mut Tx<'_>, id: &DatasetId, sha256: &str) -> Result<Vec<Version>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_version WHERE dataset = $1 AND version IN
             (SELECT version FROM catalog_version_file WHERE dataset = $1 AND sha256 = $2)
         ORDER BY version DESC"
    );
    tx.query(&sql, &params![id, sha256])?.iter().map(read).collect()
}

/// The versions whose files are there, the newest first.
pub(crate) fn kept(tx: &mut Tx<'_>, id: &DatasetId) -> Result<Vec<Version>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_version WHERE dataset = $1 AND removed_at IS NULL
         ORDER BY version DESC"
    );
    tx.query(&sql, &params![id])?.iter().map(read).collect()
}

/// Removes the rows of all versions and tags of a dataset.
pub(crate) fn forget_all(tx: &mut Tx<'_>, id: &DatasetId) -> Result<()> {
    for table in ["catalog_tag", "catalog_version_file", "catalog_version"] {
        tx.execute(&format!("DELETE FROM {table} WHERE dataset = $1"), &params![id])?;
    }
    Ok(())
}

pub(crate) fn tags(tx: &mut Tx<'_>, id: &DatasetId) -> Result<Vec<Tag>> {
    let rows = tx.query(
        "SELECT name, version, fixed, updated_at, updated_by FROM catalog_tag WHERE dataset = $1
         ORDER BY name",
        &params![id],
    )?;
    rows.iter().map(read_tag).collect()
}

fn tags_of(tx: &mut Tx<'_>, id: &DatasetId, version: i64) -> Result<Vec<TagName>> {
    let rows = tx.query(
        "SELECT name FROM catalog_tag WHERE dataset = $1 AND version = $2 ORDER BY name",
        &params![id, version],
    )?;
    let name = |row: &Row| TagName::new(row.get::<String>("name")?).map_err(Error::internal);
    rows.iter().map(name).collect()
}

pub(super) fn tag(tx: &mut Tx<'_>, id: &DatasetId, name: &TagName) -> Result<Option<Tag>> {
    let row = tx.query_opt(
        "SELECT name, version, fixed, updated_at, updated_by FROM catalog_tag
         WHERE dataset = $1 AND name = $2",
        &params![id, name.as_str()],
    )?;
    row.as_ref().map(read_tag).transpose()
}

pub(super) fn put_tag(tx: &mut Tx<'_>, id: &DatasetId, tag: &Tag) -> Result<()> {
    tx.execute(
        "INSERT INTO catalog_tag (dataset, name, version, fixed, updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (dataset, name) DO UPDATE SET version = excluded.version,
             fixed = excluded.fixed, updated_at = excluded.updated_at,
             updated_by = excluded.updated_by",
        &params![id, tag.name.as_str(), tag.version, tag.fixed, tag.updated_at, &tag.updated_by],
    )
    .map(drop)
}

pub(super) fn remove_tag(tx: &mut Tx<'_>, id: &DatasetId, name: &TagName) -> Result<bool> {
    let removed = tx.execute(
        "DELETE FROM catalog_tag WHERE dataset = $1 AND name = $2",
        &params![id, name.as_str()],
    )?;
    Ok(removed == 1)
}

fn read(row: &Row) -> Result<Version> {
    let (verb, columns): (String, String) = (row.get("verb")?, row.get("columns")?);
    let origin: Option<String> = row.get("origin")?;
    let origin: Option<Origin> =
        origin.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?;
    Ok(Version {
        version: row.get("version")?,
        made_by: Verb::parse(&verb)?,
        digest: row.get("digest")?,
        parent: row.get("parent")?,
        rows: row.get("rows")?,
        size: row.get("size")?,
        files: row.get("files")?,
        columns: serde_json::from_str(&columns).map_err(Error::internal)?,
        tags: Vec::new(),
        origin,
        message: row.get("message")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        removed_at: row.get("removed_at")?,
        statistics: row.get::<BlobId>("statistics")?,
    })
}

fn read_file(row: &Row) -> Result<VersionFile> {
    let columns: String = row.get("columns")?;
    Ok(VersionFile {
        sha256: row.get("sha256")?,
        rows: row.get("rows")?,
        size: row.get("size")?,
        columns: serde_json::from_str(&columns).map_err(Error::internal)?,
        blob: row.get("blob")?,
        statistics: row.get("statistics")?,
    })
}

fn read_tag(row: &Row) -> Result<Tag> {
    Ok(Tag {
        name: TagName::new(row.get::<String>("name")?).map_err(Error::internal)?,
        version: row.get("version")?,
        fixed: row.get("fixed")?,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
    })
}
