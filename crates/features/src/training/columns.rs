//! Columns of JSON as Arrow has them: moments that come with a request.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use falaj_base::{Error, Result};
use falaj_online::value::{Kind, Scalar, Value};
use serde_json::Value as Json;

use crate::online::column_of;
use crate::schema;

/// A table of columns; those whose kind is known are read as such, the others as what their values
/// look like.
pub(crate) fn table<'a>(
    columns: impl Iterator<Item = (&'a String, &'a Vec<Json>)>,
    known: impl Fn(&str) -> Option<Kind>,
) -> Result<RecordBatch> {
    let (mut fields, mut arrays, mut rows) = (Vec::new(), Vec::<ArrayRef>::new(), None);
    for (name, values) in columns {
        let count = *rows.get_or_insert(values.len());
        if values.len() != count {
            let (found, allowed) =
                (format!("{} values", values.len()), format!("{count}, as the other columns"));
            return Err(Error::invalid(format!("moments.{name}"), found, allowed));
        }
        let kind = known(name).map_or_else(|| looks(name, values), Ok)?;
        arrays.push(column(name, values, kind)?);
        fields.push(Field::new(name, schema::arrow(kind), true));
    }
    if rows.is_none_or(|rows| rows == 0) {
        return Err(Error::invalid("moments", "no rows", "at least one"));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(Error::internal)
}

/// What the values of a column are.
fn looks(name: &str, values: &[Json]) -> Result<Kind> {
    let mut found = None;
    for (row, value) in values.iter().enumerate() {
        let scalar = match value {
            Json::Null => continue,
            Json::Bool(_) => Scalar::Bool,
            Json::Number(number) if number.is_i64() => Scalar::Int64,
            Json::Number(_) => Scalar::Float64,
            Json::String(_) => Scalar::String,
            Json::Array(_) | Json::Object(_) => {
                let allowed = "numbers, texts, booleans or null";
                return Err(Error::invalid(format!("moments.{name}[{row}]"), value, allowed));
            }
        };
        found = match (found, scalar) {
            (None, scalar) => Some(scalar),
            (Some(old), new) if old == new => Some(old),
            (Some(Scalar::Int64 | Scalar::Float64), Scalar::Int64 | Scalar::Float64) => {
                Some(Scalar::Float64)
            }
            (Some(old), _) => {
                let allowed = format!("{old}, as the rows before");
                return Err(Error::invalid(format!("moments.{name}[{row}]"), value, allowed));
            }
        };
    }
    Ok(Kind::One(found.unwrap_or(Scalar::String)))
}

fn column(name: &str, values: &[Json], kind: Kind) -> Result<ArrayRef> {
    if let Kind::List(_) = kind {
        return Err(Error::invalid(format!("moments.{name}"), kind, "a single value"));
    }
    let read = values
        .iter()
        .enumerate()
        .map(|(row, value)| kind.read(value, || format!("moments.{name}[{row}]")));
    column_of(kind, &read.collect::<Result<Vec<Value>>>()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn read(columns: Json) -> Result<RecordBatch> {
        let columns: BTreeMap<String, Vec<Json>> = serde_json::from_value(columns).unwrap();
        table(columns.iter(), |name| (name == "at").then_some(Kind::One(Scalar::Timestamp)))
    }

    #[test]
    fn columns_are_what_they_look_like() {
        let batch = read(json!({
            "at": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"], "a": [1, null], "b": [1, 2.5],
            "c": ["x", "y"], "d": [true, false], "e": [null, null],
        }));
        let batch = batch.unwrap();
        let types: Vec<_> =
            batch.schema().fields().iter().map(|field| field.data_type().to_string()).collect();
        let time = "Timestamp(µs, \"UTC\")";
        assert_eq!(types, ["Int64", time, "Float64", "Utf8", "Boolean", "Utf8"]);
        assert_eq!(batch.num_rows(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_row() {
        for (columns, field) in [
            (json!({}), "moments"),
            (json!({"a": []}), "moments"),
            (json!({"a": [1], "b": [1, 2]}), "moments.b"),
            (json!({"a": [1, "x"]}), "moments.a[1]"),
            (json!({"a": [[1]]}), "moments.a[0]"),
            (json!({"at": ["soon"]}), "moments.at[0]"),
        ] {
            assert_eq!(read(columns).unwrap_err().field(), Some(field));
        }
    }
}
