//! Models in the database.

use std::collections::HashMap;

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};

use super::id::RegisteredId;
use super::model::Model;
use crate::version::store as versions;

const COLUMNS: &str = "id, name, description, last_version, created_at, updated_at";

/// How many models one statement asks about.
const AT_ONCE: usize = 500;

pub(crate) fn id_of(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &str,
) -> Result<Option<RegisteredId>> {
    let sql = "SELECT id FROM registered_model WHERE project = $1 AND name = $2";
    tx.query_opt(sql, &params![project, name])?.map(|row| row.get("id")).transpose()
}

/// A model without its tags, aliases and versions.
pub(crate) fn head(tx: &mut Tx<'_>, project: ProjectId, name: &str) -> Result<Option<Model>> {
    let sql = format!("SELECT {COLUMNS} FROM registered_model WHERE project = $1 AND name = $2");
    tx.query_opt(&sql, &params![project, name])?.map(|row| read(&row)).transpose()
}

/// A model, whole.
pub(crate) fn find(tx: &mut Tx<'_>, project: ProjectId, name: &str) -> Result<Option<Model>> {
    let Some(model) = head(tx, project, name)? else { return Ok(None) };
    let mut models = vec![model];
    complete(tx, &mut models)?;
    Ok(models.pop())
}

/// All models of a project, without their tags, aliases and versions.
pub(crate) fn heads(tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<Model>> {
    let sql = format!("SELECT {COLUMNS} FROM registered_model WHERE project = $1");
    tx.query(&sql, &params![project])?.iter().map(read).collect()
}

/// Those tags of a project's models that have one of these keys.
pub(crate) fn tags_named(
    tx: &mut Tx<'_>,
    project: ProjectId,
    keys: &[String],
) -> Result<HashMap<RegisteredId, Vec<(String, String)>>> {
    let mut values = vec![Value::from(project)];
    let list = placeholders(&mut values, keys.iter());
    let sql = format!(
        "SELECT t.model, t.key, t.value FROM registered_model_tag t
         JOIN registered_model m ON m.id = t.model WHERE m.project = $1 AND t.key IN ({list})"
    );
    let mut tags: HashMap<RegisteredId, Vec<(String, String)>> = HashMap::new();
    tx.scan(&sql, &values, |row| {
        tags.entry(row.get("model")?).or_default().push((row.get("key")?, row.get("value")?));
        Ok(())
    })?;
    Ok(tags)
}

/// Fills in tags, aliases and latest versions.
pub(crate) fn complete(tx: &mut Tx<'_>, models: &mut [Model]) -> Result<()> {
    for some in models.chunks_mut(AT_ONCE) {
        let places: HashMap<RegisteredId, usize> =
            some.iter().enumerate().map(|(at, model)| (model.id, at)).collect();
        let mut values = Vec::new();
        let list = placeholders(&mut values, some.iter().map(|model| model.id));
        let tags = format!(
            "SELECT model, key, value FROM registered_model_tag WHERE model IN ({list})
             ORDER BY model, key"
        );
        tx.scan(&tags, &values, |row| {
            if let Some(at) = places.get(&row.get("model")?) {
                some[*at].tags.push((row.get("key")?, row.get("value")?));
            }
            Ok(())
        })?;
        let aliases = format!(
            "SELECT model, alias, version FROM model_alias WHERE model IN ({list})
             ORDER BY model, alias"
        );
        tx.scan(&aliases, &values, |row| {
            if let Some(at) = places.get(&row.get("model")?) {
                some[*at].aliases.push((row.get("alias")?, row.get("version")?));
            }
            Ok(())
        })?;
        for mut version in versions::latest(tx, &list, &values)? {
            if let Some(at) = places.get(&version.model) {
                let model = &mut some[*at];
                let names = model.aliases.iter().filter(|(_, to)| *to == version.number);
                version.aliases = names.map(|(alias, _)| alias.clone()).collect();
                model.latest.push(version);
            }
        }
    }
    Ok(())
}

pub(crate) fn insert(tx: &mut Tx<'_>, project: ProjectId, model: &Model) -> Result<()> {
    tx.execute(
        "INSERT INTO registered_model
             (id, project, name, description, last_version, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &params![
            model.id,
            project,
            &model.name,
            &model.description,
            model.last_version,
            model.created_at,
            model.updated_at,
        ],
    )?;
    model.tags.iter().try_for_each(|(key, value)| set_tag(tx, model.id, key, value))
}

pub(crate) fn describe(tx: &mut Tx<'_>, id: RegisteredId, text: &str, now: i64) -> Result<()> {
    tx.execute(
        "UPDATE registered_model SET description = $2, updated_at = $3 WHERE id = $1",
        &params![id, text, now],
    )
    .map(drop)
}

/// Gives a model another name; its versions count as changed with it.
pub(crate) fn rename(tx: &mut Tx<'_>, id: RegisteredId, name: &str, now: i64) -> Result<()> {
    tx.execute(
        "UPDATE registered_model SET name = $2, updated_at = $3 WHERE id = $1",
        &params![id, name, now],
    )?;
    let sql = "UPDATE model_version SET updated_at = $2 WHERE model = $1";
    tx.execute(sql, &params![id, now]).map(drop)
}

pub(crate) fn touch(tx: &mut Tx<'_>, id: RegisteredId, now: i64) -> Result<()> {
    let sql = "UPDATE registered_model SET updated_at = $2 WHERE id = $1";
    tx.execute(sql, &params![id, now]).map(drop)
}

/// Takes the next version number.
pub(crate) fn next_version(tx: &mut Tx<'_>, model: &Model, now: i64) -> Result<i64> {
    let next = model.last_version + 1;
    tx.execute(
        "UPDATE registered_model SET last_version = $2, updated_at = $3 WHERE id = $1",
        &params![model.id, next, now],
    )?;
    Ok(next)
}

/// Deletes a model with everything about it but its history.
pub(crate) fn delete(tx: &mut Tx<'_>, id: RegisteredId) -> Result<()> {
    for table in [
        "model_alias",
        "model_version_tag",
        "model_evidence",
        "model_card",
        "model_approval",
        "model_version",
        "registered_model_tag",
    ] {
        tx.execute(&format!("DELETE FROM {table} WHERE model = $1"), &params![id])?;
    }
    tx.execute("DELETE FROM registered_model WHERE id = $1", &params![id]).map(drop)
}

pub(crate) fn tag(tx: &mut Tx<'_>, id: RegisteredId, key: &str) -> Result<Option<String>> {
    let sql = "SELECT value FROM registered_model_tag WHERE model = $1 AND key = $2";
    tx.query_opt(sql, &params![id, key])?.map(|row| row.get("value")).transpose()
}

pub(crate) fn set_tag(tx: &mut Tx<'_>, id: RegisteredId, key: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO registered_model_tag (model, key, value) VALUES ($1, $2, $3)
         ON CONFLICT (model, key) DO UPDATE SET value = excluded.value",
        &params![id, key, value],
    )
    .map(drop)
}

pub(crate) fn delete_tag(tx: &mut Tx<'_>, id: RegisteredId, key: &str) -> Result<()> {
    let sql = "DELETE FROM registered_model_tag WHERE model = $1 AND key = $2";
    tx.execute(sql, &params![id, key]).map(drop)
}

/// Adds values to a statement's parameters and gives the list that stands for them.
pub(crate) fn placeholders<V: Into<Value>>(
    values: &mut Vec<Value>,
    more: impl Iterator<Item = V>,
) -> String {
    let place = |value: V| {
        values.push(value.into());
        format!("${}", values.len())
    };
    more.map(place).collect::<Vec<_>>().join(", ")
}

fn read(row: &Row) -> Result<Model> {
    Ok(Model {
        id: row.get("id")?,
        name: row.get("name")?,
        description: row.get("description")?,
        last_version: row.get("last_version")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        tags: Vec::new(),
        aliases: Vec::new(),
        latest: Vec::new(),
    })
}
