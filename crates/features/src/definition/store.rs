//! Definitions in the database.

use std::sync::Arc;

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::{FromValue, Row, Tx, Value, params};

use super::apply::{Existing, Latest, Step};
use super::definition::{Definition, VersionId};
use super::form::{Form, Noun};
use crate::name::FeatureName;

/// A definition has a row; each of its versions has one that is never changed. The versions of all
/// projects are numbered together, since small numbers are what rows refer to. Row 3 of `epoch`
/// moves with every apply.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_definition (
        project TEXT NOT NULL REFERENCES project (id), noun TEXT NOT NULL, name TEXT NOT NULL,
        latest INTEGER NOT NULL, about TEXT NOT NULL, updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL, PRIMARY KEY (project, noun, name)) CLUSTERED;
    CREATE TABLE feature_version (
        id INTEGER PRIMARY KEY, project TEXT NOT NULL, noun TEXT NOT NULL, name TEXT NOT NULL,
        version INTEGER NOT NULL, hash TEXT NOT NULL, form TEXT NOT NULL,
        created_at INTEGER NOT NULL, created_by TEXT NOT NULL,
        UNIQUE (project, noun, name, version));
    INSERT INTO epoch (id, value) VALUES (3, 1);";

/// Versions of a view whose rows are the same have them together, under the first of them.
pub(crate) const SHARED: &str = "ALTER TABLE feature_version ADD COLUMN rows INTEGER;";

/// The row of `epoch` that moves with every apply.
pub(crate) const EPOCH: i64 = 3;

const SELECT: &str = "
    SELECT v.id, COALESCE(v.rows, v.id) AS rows, v.noun, v.name, v.version, d.latest, v.hash, v.form, d.about, v.created_at,
        v.created_by
    FROM feature_definition AS d JOIN feature_version AS v
        ON v.project = d.project AND v.noun = d.noun AND v.name = d.name";

/// What is held by whoever changes the definitions of a project.
pub(crate) fn lock(project: ProjectId) -> String {
    format!("features/{project}")
}

impl FromValue for VersionId {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).map(Self)
    }
}

/// The latest versions of all definitions of a project.
pub(crate) fn latest(tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<Arc<Definition>>> {
    let sql =
        format!("{SELECT} AND v.version = d.latest WHERE d.project = $1 ORDER BY d.noun, d.name");
    let rows = tx.query(&sql, &params![project])?;
    rows.iter().map(|row| read(row).map(Arc::new)).collect()
}

/// One version of a definition; the latest if none is named.
pub(crate) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    noun: Noun,
    name: &FeatureName,
    version: Option<i64>,
) -> Result<Option<Definition>> {
    let sql = format!(
        "{SELECT} WHERE d.project = $1 AND d.noun = $2 AND d.name = $3
             AND v.version = COALESCE($4, d.latest)"
    );
    let values = params![project, noun.as_str(), name.as_str(), version];
    tx.query_opt(&sql, &values)?.as_ref().map(read).transpose()
}

/// A version by its number, with its project.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: VersionId) -> Result<Option<(ProjectId, Definition)>> {
    let sql = format!("{} WHERE v.id = $1", SELECT.replacen("v.id,", "v.id, v.project,", 1));
    let row = tx.query_opt(&sql, &params![id])?;
    row.as_ref().map(|row| Ok((row.get("project")?, read(row)?))).transpose()
}

pub(super) fn existing(tx: &mut Tx<'_>, project: ProjectId) -> Result<Existing> {
    let key = |it: &Definition| (it.kind, it.name.clone());
    let value = |it: &Definition| Latest {
        version: it.version,
        hash: it.hash.clone(),
        form: it.definition.clone(),
        about: it.about.clone(),
    };
    Ok(latest(tx, project)?.iter().map(|it| (key(it), value(it))).collect())
}

/// Adds versions, numbered on from the last of all.
pub(super) fn add_versions<'a>(
    tx: &mut Tx<'_>,
    project: ProjectId,
    steps: impl Iterator<Item = &'a Step>,
    by: &str,
) -> Result<()> {
    tx.lock("feature-versions")?;
    let sql = "SELECT COALESCE(MAX(id), 0) AS n FROM feature_version";
    let last: i64 = tx.query_one(sql, &[])?.get("n")?;
    let now = tx.now();
    for (number, step) in (last + 1..).zip(steps) {
        let Latest { version, hash, form, .. } = &step.next;
        let rows = shared(tx, project, form)?;
        tx.execute(
            "INSERT INTO feature_version
                 (id, project, noun, name, version, hash, form, created_at, created_by, rows)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            &params![
                number,
                project,
                form.noun().as_str(),
                form.name().as_str(),
                *version,
                hash,
                form.canonical()?,
                now,
                by,
                rows
            ],
        )?;
    }
    Ok(())
}

/// What the rows of the version before are kept under, if they are rows of this one as well.
fn shared(tx: &mut Tx<'_>, project: ProjectId, form: &Form) -> Result<Option<VersionId>> {
    let Form::View(next) = form else { return Ok(None) };
    let row = tx.query_opt(
        "SELECT COALESCE(rows, id) AS rows, form FROM feature_version
         WHERE project = $1 AND noun = $2 AND name = $3 ORDER BY version DESC LIMIT 1",
        &params![project, Noun::View.as_str(), next.name.as_str()],
    )?;
    let Some(row) = row else { return Ok(None) };
    let before: String = row.get("form")?;
    match serde_json::from_str(&before).map_err(Error::internal)? {
        Form::View(before) if next.has_rows_of(&before) => row.get("rows").map(Some),
        _ => Ok(None),
    }
}

/// Makes a version the latest, with what is said of the definition.
pub(super) fn put(tx: &mut Tx<'_>, project: ProjectId, step: &Step, by: &str) -> Result<()> {
    let about = serde_json::to_string(&step.next.about).map_err(Error::internal)?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO feature_definition (project, noun, name, latest, about, updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (project, noun, name) DO UPDATE SET latest = excluded.latest,
             about = excluded.about, updated_at = excluded.updated_at,
             updated_by = excluded.updated_by",
        &params![
            project,
            step.noun().as_str(),
            step.name().as_str(),
            step.next.version,
            about,
            now,
            by
        ],
    )
    .map(drop)
}

fn read(row: &Row) -> Result<Definition> {
    let (form, about): (String, String) = (row.get("form")?, row.get("about")?);
    let (noun, name): (String, String) = (row.get("noun")?, row.get("name")?);
    let definition: Form = serde_json::from_str(&form).map_err(Error::internal)?;
    Ok(Definition {
        kind: Noun::parse(&noun)?,
        name: FeatureName::new(name).map_err(Error::internal)?,
        version: row.get("version")?,
        latest: row.get("latest")?,
        hash: row.get("hash")?,
        definition,
        about: serde_json::from_str(&about).map_err(Error::internal)?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        id: row.get("id")?,
        rows: row.get("rows")?,
    })
}
