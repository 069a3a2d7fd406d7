//! Columns by their numbers.

use std::collections::BTreeMap;

use arrow_schema::DataType;
use falaj_base::{Error, Result};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::column::{At, Column, decimal, list, moment, unread};

/// A schema as metadata has it.
#[derive(Debug, Deserialize)]
pub(super) struct Schema {
    #[serde(default, rename = "schema-id")]
    pub(super) id: Option<i64>,
    fields: Vec<Field>,
}

#[derive(Debug, Deserialize)]
struct Field {
    id: i32,
    name: String,
    #[serde(rename = "type")]
    kind: Json,
}

/// Names that files without numbers know columns by.
pub(super) type Names = BTreeMap<i32, Vec<String>>;

#[derive(Deserialize)]
struct Mapped {
    #[serde(default, rename = "field-id")]
    id: Option<i32>,
    #[serde(default)]
    names: Vec<String>,
}

/// The names that a property of a table tells.
pub(super) fn names(text: &str, table: &str) -> Result<Names> {
    let all: Vec<Mapped> = serde_json::from_str(text).map_err(|error| {
        let why: String = error.to_string().chars().take(200).collect();
        Error::invalid(format!("{table} schema.name-mapping.default"), why, "a name mapping")
    })?;
    Ok(all.into_iter().filter_map(|it| Some((it.id?, it.names))).collect())
}

impl Schema {
    pub(super) fn columns(&self, names: Option<&Names>) -> Vec<Column> {
        let at = |id: i32| {
            let names = names.map(|names| names.get(&id).cloned().unwrap_or_default());
            At::Id { id, names }
        };
        let column = |field: &Field| Column {
            name: field.name.clone(),
            kind: kind(&field.kind),
            at: at(field.id),
        };
        self.fields.iter().map(column).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }
}

/// The number of a column.
pub(super) fn number(column: &Column) -> Option<i32> {
    match &column.at {
        At::Id { id, .. } => Some(*id),
        At::Name(_) => None,
    }
}

fn kind(told: &Json) -> DataType {
    match told {
        Json::String(name) => match name.as_str() {
            "boolean" => DataType::Boolean,
            "int" => DataType::Int32,
            "long" => DataType::Int64,
            "float" => DataType::Float32,
            "double" => DataType::Float64,
            "string" => DataType::Utf8,
            "binary" => DataType::Binary,
            "date" => DataType::Date32,
            "timestamp" => moment(false),
            "timestamptz" => moment(true),
            other if other.starts_with("fixed[") => DataType::Binary,
            other => decimal(other).unwrap_or_else(unread),
        },
        Json::Object(nested) => {
            let inner = nested.get("element").filter(|it| it.is_string()).map(kind);
            match (nested.get("type").and_then(Json::as_str), inner) {
                (Some("list"), Some(inner)) if inner != unread() => list(inner),
                _ => unread(),
            }
        }
        _ => unread(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_those_of_the_specification() {
        let floats = json!({"type": "list", "element-id": 3, "element": "float",
            "element-required": false});
        let map = json!({"type": "map", "key-id": 3, "key": "string", "value-id": 4,
            "value": "long", "value-required": true});
        for (told, is) in [
            (json!("int"), DataType::Int32),
            (json!("timestamptz"), moment(true)),
            (json!("timestamp"), moment(false)),
            (json!("timestamp_ns"), unread()),
            (json!("fixed[16]"), DataType::Binary),
            (json!("uuid"), unread()),
            (json!("decimal(9, 2)"), DataType::Decimal128(9, 2)),
            (floats, list(DataType::Float32)),
            (map, unread()),
        ] {
            assert_eq!(kind(&told), is, "{told}");
        }
    }

    #[test]
    fn names_are_for_files_without_numbers() {
        let schema: Schema = serde_json::from_value(json!({"type": "struct", "schema-id": 1,
            "fields": [{"id": 1, "name": "new", "required": true, "type": "long"},
                {"id": 2, "name": "other", "required": false, "type": "long"}]}))
        .unwrap();
        let known = names(r#"[{"field-id": 1, "names": ["old", "older"]}]"#, "t").unwrap();
        let columns = schema.columns(Some(&known));
        let old = Some(vec!["old".to_owned(), "older".to_owned()]);
        assert_eq!(columns[0].at, At::Id { id: 1, names: old });
        assert_eq!(columns[1].at, At::Id { id: 2, names: Some(Vec::new()) });
        assert_eq!(schema.columns(None)[0].at, At::Id { id: 1, names: None });
        assert!(names("{", "t").is_err());
    }
}
