//! Versions in the database.

use std::collections::{BTreeMap, HashMap};

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};

use super::stage::Stage;
use super::version::Version;
use crate::model::RegisteredId;
use crate::model::store::placeholders;
use crate::tag::Tags;

const COLUMNS: &str = "v.model, m.name, v.version, v.description, v.stage, v.source, v.location,
    v.files, v.run_id, v.run_link, v.logged_model, v.created_by, v.created_at, v.updated_at";

/// How many models one statement asks about.
const AT_ONCE: usize = 200;

/// A version, whole.
pub(crate) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &str,
    number: i64,
) -> Result<Option<Version>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM model_version v JOIN registered_model m ON m.id = v.model
         WHERE m.project = $1 AND m.name = $2 AND v.version = $3"
    );
    let Some(row) = tx.query_opt(&sql, &params![project, name, number])? else { return Ok(None) };
    let mut versions = vec![read(&row)?];
    complete(tx, &mut versions)?;
    Ok(versions.pop())
}

/// The newest version of each stage, of the models in a list: with tags, without aliases.
pub(crate) fn latest(tx: &mut Tx<'_>, list: &str, values: &[Value]) -> Result<Vec<Version>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM model_version v JOIN registered_model m ON m.id = v.model
         JOIN (SELECT model, stage, MAX(version) AS version FROM model_version
               WHERE model IN ({list}) GROUP BY model, stage) newest
           ON newest.model = v.model AND newest.version = v.version
         ORDER BY v.model, v.version"
    );
    let rows = tx.query(&sql, values)?;
    let mut versions: Vec<Version> = rows.iter().map(read).collect::<Result<_>>()?;
    add_tags(tx, &mut versions)?;
    Ok(versions)
}

/// The newest number of a model, in one stage or in any.
pub(crate) fn newest(
    tx: &mut Tx<'_>,
    model: RegisteredId,
    stage: Option<Stage>,
) -> Result<Option<i64>> {
    let sql = "SELECT MAX(version) AS newest FROM model_version
               WHERE model = $1 AND (CAST($2 AS TEXT) IS NULL OR stage = $2)";
    tx.query_one(sql, &params![model, stage])?.get("newest")
}

/// Which versions of a project a search has to look at.
#[derive(Clone, Debug, Default)]
pub(super) struct Narrowed {
    pub(super) names: Option<Vec<String>>,
    pub(super) runs: Option<Vec<String>>,
}

impl Narrowed {
    fn condition(&self, project: ProjectId) -> (String, Vec<Value>) {
        let mut values = vec![Value::from(project)];
        let mut conditions = vec!["m.project = $1".to_owned()];
        for (column, list) in [("m.name", &self.names), ("v.run_id", &self.runs)] {
            if let Some(list) = list {
                let list = placeholders(&mut values, list.iter());
                conditions.push(format!("{column} IN ({list})"));
            }
        }
        (conditions.join(" AND "), values)
    }
}

/// The versions that may match, without tags and aliases.
pub(super) fn heads(
    tx: &mut Tx<'_>,
    project: ProjectId,
    narrowed: &Narrowed,
) -> Result<Vec<Version>> {
    let (condition, values) = narrowed.condition(project);
    let sql = format!(
        "SELECT {COLUMNS} FROM model_version v JOIN registered_model m ON m.id = v.model
         WHERE {condition}"
    );
    let mut found = Vec::new();
    tx.scan(&sql, &values, |row| {
        found.push(read(&row)?);
        Ok(())
    })?;
    Ok(found)
}

/// Those of their tags that have one of these keys.
pub(super) fn tags_named(
    tx: &mut Tx<'_>,
    project: ProjectId,
    narrowed: &Narrowed,
    keys: &[String],
) -> Result<HashMap<(RegisteredId, i64), Tags>> {
    let (condition, mut values) = narrowed.condition(project);
    let list = placeholders(&mut values, keys.iter());
    let sql = format!(
        "SELECT t.model, t.version, t.key, t.value FROM model_version_tag t
         JOIN model_version v ON v.model = t.model AND v.version = t.version
         JOIN registered_model m ON m.id = t.model WHERE {condition} AND t.key IN ({list})"
    );
    let mut tags: HashMap<(RegisteredId, i64), Tags> = HashMap::new();
    tx.scan(&sql, &values, |row| {
        let of = (row.get("model")?, row.get("version")?);
        tags.entry(of).or_default().push((row.get("key")?, row.get("value")?));
        Ok(())
    })?;
    Ok(tags)
}

/// Fills in tags and aliases.
pub(crate) fn complete(tx: &mut Tx<'_>, versions: &mut [Version]) -> Result<()> {
    add_tags(tx, versions)?;
    each_range(tx, versions, "alias, '' AS value", "model_alias", |version, alias, _| {
        version.aliases.push(alias);
    })?;
    for version in versions {
        version.aliases.sort_unstable();
    }
    Ok(())
}

fn add_tags(tx: &mut Tx<'_>, versions: &mut [Version]) -> Result<()> {
    each_range(tx, versions, "key AS alias, value", "model_version_tag", |version, key, value| {
        version.tags.push((key, value));
    })?;
    for version in versions {
        version.tags.sort_unstable();
    }
    Ok(())
}

/// Reads the rows that belong to some versions. They are asked for by model and by range of
/// numbers: a page is mostly a few neighbours, and of a single version nothing else is read.
fn each_range(
    tx: &mut Tx<'_>,
    versions: &mut [Version],
    columns: &str,
    table: &str,
    mut add: impl FnMut(&mut Version, String, String),
) -> Result<()> {
    let mut places: HashMap<(RegisteredId, i64), usize> = HashMap::new();
    let mut ranges: BTreeMap<RegisteredId, (i64, i64)> = BTreeMap::new();
    for (at, version) in versions.iter().enumerate() {
        places.insert((version.model, version.number), at);
        let (low, high) = ranges.entry(version.model).or_insert((version.number, version.number));
        *low = version.number.min(*low);
        *high = version.number.max(*high);
    }
    let ranges: Vec<_> = ranges.into_iter().collect();
    for some in ranges.chunks(AT_ONCE) {
        let mut values = Vec::new();
        let mut conditions = Vec::new();
        for (model, (low, high)) in some {
            let at = values.len();
            values.extend(params![*model, *low, *high]);
            conditions.push(format!(
                "(model = ${} AND version BETWEEN ${} AND ${})",
                at + 1,
                at + 2,
                at + 3
            ));
        }
        let sql = format!(
            "SELECT model, version, {columns} FROM {table} WHERE {}",
            conditions.join(" OR ")
        );
        tx.scan(&sql, &values, |row| {
            if let Some(at) = places.get(&(row.get("model")?, row.get("version")?)) {
                add(&mut versions[*at], row.get("alias")?, row.get("value")?);
            }
            Ok(())
        })?;
    }
    Ok(())
}

pub(crate) fn insert(tx: &mut Tx<'_>, version: &Version) -> Result<()> {
    tx.execute(
        "INSERT INTO model_version (model, version, description, stage, source, location, files,
             run_id, run_link, logged_model, created_by, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        &params![
            version.model,
            version.number,
            version.description.clone(),
            version.stage,
            &version.source,
            &version.location,
            version.files.clone(),
            version.run_id.clone(),
            &version.run_link,
            version.logged_model.clone(),
            &version.created_by,
            version.created_at,
            version.updated_at,
        ],
    )?;
    let of = (version.model, version.number);
    version.tags.iter().try_for_each(|(key, value)| set_tag(tx, of, key, value))
}

pub(crate) fn describe(
    tx: &mut Tx<'_>,
    (model, number): (RegisteredId, i64),
    text: Option<&str>,
    now: i64,
) -> Result<()> {
    tx.execute(
        "UPDATE model_version SET description = $3, updated_at = $4
         WHERE model = $1 AND version = $2",
        &params![model, number, text, now],
    )
    .map(drop)
}

pub(crate) fn set_stage(
    tx: &mut Tx<'_>,
    (model, number): (RegisteredId, i64),
    stage: Stage,
    now: i64,
) -> Result<()> {
    tx.execute(
        "UPDATE model_version SET stage = $3, updated_at = $4 WHERE model = $1 AND version = $2",
        &params![model, number, stage, now],
    )
    .map(drop)
}

/// The versions of a model that are in a stage.
pub(crate) fn in_stage(tx: &mut Tx<'_>, model: RegisteredId, stage: Stage) -> Result<Vec<i64>> {
    let sql = "SELECT version FROM model_version WHERE model = $1 AND stage = $2 ORDER BY version";
    tx.query(sql, &params![model, stage])?.iter().map(|row| row.get("version")).collect()
}

pub(crate) fn delete(tx: &mut Tx<'_>, model: RegisteredId, number: i64) -> Result<()> {
    for table in [
        "model_alias",
        "model_version_tag",
        "model_evidence",
        "model_card",
        "model_approval",
        "model_version",
    ] {
        let sql = format!("DELETE FROM {table} WHERE model = $1 AND version = $2");
        tx.execute(&sql, &params![model, number])?;
    }
    Ok(())
}

pub(crate) fn tag(
    tx: &mut Tx<'_>,
    (model, number): (RegisteredId, i64),
    key: &str,
) -> Result<Option<String>> {
    let sql = "SELECT value FROM model_version_tag WHERE model = $1 AND version = $2 AND key = $3";
    tx.query_opt(sql, &params![model, number, key])?.map(|row| row.get("value")).transpose()
}

pub(crate) fn set_tag(
    tx: &mut Tx<'_>,
    (model, number): (RegisteredId, i64),
    key: &str,
    value: &str,
) -> Result<()> {
    tx.execute(
        "INSERT INTO model_version_tag (model, version, key, value) VALUES ($1, $2, $3, $4)
         ON CONFLICT (model, version, key) DO UPDATE SET value = excluded.value",
        &params![model, number, key, value],
    )
    .map(drop)
}

pub(crate) fn delete_tag(
    tx: &mut Tx<'_>,
    (model, number): (RegisteredId, i64),
    key: &str,
) -> Result<()> {
    let sql = "DELETE FROM model_version_tag WHERE model = $1 AND version = $2 AND key = $3";
    tx.execute(sql, &params![model, number, key]).map(drop)
}

fn read(row: &Row) -> Result<Version> {
    Ok(Version {
        model: row.get("model")?,
        name: row.get("name")?,
        number: row.get("version")?,
        description: row.get("description")?,
        stage: row.get("stage")?,
        source: row.get("source")?,
        location: row.get("location")?,
        files: row.get("files")?,
        run_id: row.get("run_id")?,
        run_link: row.get("run_link")?,
        logged_model: row.get("logged_model")?,
        created_by: row.get("created_by")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        tags: Vec::new(),
        aliases: Vec::new(),
    })
}
