//! The columns of a table, as Delta writes them down.

use std::collections::BTreeMap;

use arrow_schema::DataType;
use falaj_base::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::action::Metadata;
use crate::column::{At, Column, decimal, list, moment, unread};

#[derive(Deserialize)]
struct Struct {
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    #[serde(rename = "type")]
    kind: Value,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

const ID: &str = "delta.columnMapping.id";
const PHYSICAL: &str = "delta.columnMapping.physicalName";

/// How files know columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    None,
    Name,
    Id,
}

/// A table's columns, and what each is called where values of partitions stand.
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    pub(super) physical: Vec<String>,
}

pub(super) fn columns(metadata: &Metadata, table: &str, most: usize) -> Result<Columns> {
    let field = || format!("{table} metaData");
    let mode = metadata.configuration.get("delta.columnMapping.mode").and_then(Option::as_deref);
    let mapping = match mode {
        None | Some("none") => Mapping::None,
        Some("name") => Mapping::Name,
        Some("id") => Mapping::Id,
        Some(other) => {
            let name = format!("{table} delta.columnMapping.mode");
            return Err(Error::invalid(name, other, "none, name or id"));
        }
    };
    let parsed: Struct = serde_json::from_str(&metadata.schema_string).map_err(|error| {
        let why: String = error.to_string().chars().take(200).collect();
        Error::invalid(format!("{} schemaString", field()), why, "a schema of Delta's")
    })?;
    if parsed.fields.len() > most {
        let found = format!("{} columns", parsed.fields.len());
        return Err(Error::invalid(field(), found, format!("at most {most}")));
    }
    let (mut columns, mut physical) = (Vec::new(), Vec::new());
    for one in parsed.fields {
        let lacks = |key: &str| {
            Error::invalid(format!("{} {}", field(), one.name), "unmapped", format!("a `{key}`"))
        };
        let called = if mapping == Mapping::None {
            one.name.clone()
        } else {
            let name = one.metadata.get(PHYSICAL).and_then(Value::as_str);
            name.ok_or_else(|| lacks(PHYSICAL))?.to_owned()
        };
        let at = match mapping {
            Mapping::Id => {
                let id = one.metadata.get(ID).and_then(Value::as_i64);
                let id = id.and_then(|id| i32::try_from(id).ok()).ok_or_else(|| lacks(ID))?;
                At::Id { id, names: None }
            }
            _ => At::Name(called.clone()),
        };
        columns.push(Column { name: one.name.clone(), kind: kind(&one.kind), at });
        physical.push(called);
    }
    Ok(Columns { columns, physical })
}

fn kind(told: &Value) -> DataType {
    match told {
        Value::String(name) => match name.as_str() {
            "boolean" => DataType::Boolean,
            "byte" => DataType::Int8,
            "short" => DataType::Int16,
            "integer" => DataType::Int32,
            "long" => DataType::Int64,
            "float" => DataType::Float32,
            "double" => DataType::Float64,
            "string" => DataType::Utf8,
            "binary" => DataType::Binary,
            "date" => DataType::Date32,
            "timestamp" => moment(true),
            "timestamp_ntz" => moment(false),
            other => decimal(other).unwrap_or_else(unread),
        },
        Value::Object(nested) => {
            let inner = nested.get("elementType").filter(|it| it.is_string()).map(kind);
            match (nested.get("type").and_then(Value::as_str), inner) {
                (Some("array"), Some(inner)) if inner != unread() => list(inner),
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

    fn read(fields: Value, mode: Option<&str>) -> Result<Columns> {
        let configuration = mode
            .map(|mode| ("delta.columnMapping.mode".to_owned(), Some(mode.to_owned())))
            .into_iter()
            .collect();
        let schema_string = json!({"type": "struct", "fields": fields}).to_string();
        let partition_columns = Vec::new();
        let metadata = Metadata { format: None, schema_string, partition_columns, configuration };
        columns(&metadata, "t", 10)
    }

    #[test]
    fn types_are_those_of_the_protocol() {
        let array = json!({"type": "array", "elementType": "float", "containsNull": true});
        let nested = json!({"type": "struct", "fields": []});
        let of_structs = json!({"type": "array", "elementType": nested, "containsNull": true});
        for (told, is) in [
            (json!("long"), DataType::Int64),
            (json!("timestamp"), moment(true)),
            (json!("timestamp_ntz"), moment(false)),
            (json!("decimal(10,2)"), DataType::Decimal128(10, 2)),
            (json!("decimal(99,2)"), unread()),
            (json!("variant"), unread()),
            (array, list(DataType::Float32)),
            (nested, unread()),
            (of_structs, unread()),
            (json!(7), unread()),
        ] {
            assert_eq!(kind(&told), is, "{told}");
        }
    }

    #[test]
    fn renamed_columns_are_known_by_what_they_were_called() {
        let mapped = json!([{"name": "new", "type": "long", "nullable": true,
            "metadata": {(ID): 3, (PHYSICAL): "col-1"}}]);
        let plain = json!([{"name": "new", "type": "long", "nullable": true, "metadata": {}}]);
        let by_name = read(mapped.clone(), Some("name")).unwrap();
        assert_eq!(by_name.columns[0].at, At::Name("col-1".to_owned()));
        let by_id = read(mapped.clone(), Some("id")).unwrap();
        assert_eq!(by_id.columns[0].at, At::Id { id: 3, names: None });
        assert_eq!(by_id.physical, ["col-1"]);
        assert_eq!(read(mapped, None).unwrap().physical, ["new"]);
        assert!(read(plain.clone(), Some("name")).is_err());
        assert!(read(plain.clone(), Some("id")).is_err());
        assert!(read(plain.clone(), Some("other")).is_err());
        let many: Vec<Value> = (0..11).map(|_| plain[0].clone()).collect();
        assert!(read(Value::Array(many), None).is_err());
    }
}
