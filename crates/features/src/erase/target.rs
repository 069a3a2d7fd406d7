//! Which rows of which views are an entity's.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use falaj_base::{Error, ProjectId, Result};
use falaj_online::{Kind, Value};
use falaj_store::db::{Tx, params};
use serde_json::{Map, Value as Json};

use crate::definition::form::{Form, Noun, Origin, SourceForm, ViewForm};
use crate::definition::{VersionId, ViewVersion, store};
use crate::name::FeatureName;
use crate::online::value_in;

/// The rows of an entity in what versions of a view have together.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The version that the rows are kept under.
    pub(super) view: ViewVersion,
    /// All versions that have them.
    pub(super) versions: Vec<VersionId>,
    /// For each join key of the view: its kind, and the entity's value if the key is the entity's.
    pub(super) keys: Vec<(String, Kind, Option<Value>)>,
}

impl Target {
    /// The entity's values, in the order of the join keys.
    pub(super) fn values(&self) -> Vec<Option<Value>> {
        self.keys.iter().map(|(_, _, value)| value.clone()).collect()
    }

    /// The columns that tell the entity.
    pub(super) fn columns(&self) -> Vec<String> {
        let named = self.keys.iter().filter(|(.., value)| value.is_some());
        named.map(|(name, ..)| name.clone()).collect()
    }

    /// Which rows are not the entity's.
    pub(super) fn others(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let mut columns = Vec::new();
        for (name, kind, value) in &self.keys {
            if let Some(value) = value {
                let column = batch.column_by_name(name);
                let column = column.ok_or_else(|| Error::internal("kept rows lack a key"))?;
                columns.push((column, *kind, value));
            }
        }
        let other = |row: usize| {
            for (column, kind, value) in &columns {
                if value_in(column, row, *kind)? != **value {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        };
        (0..batch.num_rows()).map(other).collect()
    }
}

/// Everything that has rows of an entity with these keys, in all versions of all views.
pub(super) fn targets(
    tx: &mut Tx<'_>,
    project: ProjectId,
    entity: &FeatureName,
    keys: &Map<String, Json>,
) -> Result<Vec<Target>> {
    let rows = tx.query(
        "SELECT id, COALESCE(rows, id) AS rows FROM feature_version
         WHERE project = $1 AND noun = $2 ORDER BY id",
        &params![project, Noun::View.as_str()],
    )?;
    let mut together: BTreeMap<VersionId, Vec<VersionId>> = BTreeMap::new();
    for row in &rows {
        together.entry(row.get("rows")?).or_default().push(row.get("id")?);
    }
    let mut found = Vec::new();
    for (under, versions) in together {
        let Some((_, definition)) = store::by_id(tx, under)? else { continue };
        let Some(view) = ViewVersion::of(&Arc::new(definition)) else { continue };
        if let Some(keys) = keys_of(view.form(), entity, keys) {
            found.push(Target { view, versions, keys });
        }
    }
    Ok(found)
}

/// The join keys of a view with the entity's values; none if it has no such entity, or keys that these
/// values cannot be.
fn keys_of(
    view: &ViewForm,
    entity: &FeatureName,
    keys: &Map<String, Json>,
) -> Option<Vec<(String, Kind, Option<Value>)>> {
    let own = view.entities.iter().find(|it| it.name == *entity)?;
    let mut found = Vec::new();
    for key in view.keys() {
        let value = if own.join_keys.iter().any(|it| it.name == key.name) {
            Some(value(key.kind, keys.get(key.name.as_str())?)?)
        } else {
            None
        };
        found.push((key.name.to_string(), key.kind, value));
    }
    Some(found)
}

/// A value as a kind has it; an earlier version may have had it as text.
fn value(kind: Kind, json: &Json) -> Option<Value> {
    let read = |json: &Json| kind.read(json, String::new).ok().filter(|it| *it != Value::Null);
    read(json).or_else(|| match json {
        Json::Number(number) => read(&number.to_string().into()),
        Json::String(text) => text.parse::<i64>().ok().and_then(|number| read(&number.into())),
        _ => None,
    })
}

/// The sources of some views that are not ours to change, by name.
pub(super) fn sources(targets: &[Target]) -> Vec<FeatureName> {
    fn outside(source: &SourceForm, names: &mut Vec<FeatureName>) {
        match &source.origin {
            Origin::Push { batch } => {
                if let Some(batch) = batch {
                    outside(batch, names);
                }
            }
            _ => names.push(source.name.clone()),
        }
    }
    let mut names = Vec::new();
    for target in targets {
        outside(&target.view.form().source, &mut names);
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a form is that of an entity, and its join keys with their kinds.
pub(super) fn join_keys(form: &Form) -> Option<Vec<(String, Kind)>> {
    let Form::Entity(form) = form else { return None };
    Some(form.join_keys.iter().map(|key| (key.name.to_string(), key.kind)).collect())
}
