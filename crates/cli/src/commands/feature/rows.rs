//! Rows of a file as columns of JSON, some at a time.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_inference::Data;
use falaj_tables::{Batch, Batches, Column, Item, Limits, Many, Part, Table};
use serde_json::{Map, Value};

use super::csv;
use super::push::Format;
use crate::exit::{Failure, Result};

/// Columns by name, each a list with a value for each row.
type Columns = Map<String, Value>;

/// The largest text that is read at once.
const MAX_TEXT: u64 = 1 << 30;

/// The rows of a file, in their order.
pub(super) enum Rows {
    /// Columns that are there as a whole, and how far they were given out.
    Whole {
        columns: Vec<(String, Vec<Value>)>,
        rows: usize,
        at: usize,
        at_once: usize,
    },
    Parquet {
        batches: Box<Batches>,
        rows: u64,
    },
}

impl Rows {
    /// How many there are.
    pub(super) fn total(&self) -> u64 {
        match self {
            Self::Whole { rows, .. } => *rows as u64,
            Self::Parquet { rows, .. } => *rows,
        }
    }
}

impl Iterator for Rows {
    type Item = Result<Columns>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Whole { columns, rows, at, at_once } => {
                let (from, to) = (*at, (*at + *at_once).min(*rows));
                if from >= to {
                    return None;
                }
                *at = to;
                let some = |values: &mut Vec<Value>| {
                    Value::Array(values[from..to].iter_mut().map(Value::take).collect())
                };
                Some(Ok(columns.iter_mut().map(|(name, it)| (name.clone(), some(it))).collect()))
            }
            Self::Parquet { batches, .. } => {
                let batch = batches.next()?;
                Some(batch.map(|batch| columns_of(&batch)).map_err(Failure::from))
            }
        }
    }
}

/// Opens a file; `kinds` are the types of columns that come as text.
pub(super) fn open(path: &Path, format: Format, kinds: &Columns, at_once: usize) -> Result<Rows> {
    if format == Format::Parquet {
        if path.as_os_str() == "-" {
            return Err(Failure::usage("Parquet is read from a file, not from stdin".to_owned()));
        }
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let table = Table::open(file, Limits::default())?;
        let part = Part { columns: None, groups: None, rows_at_once: at_once };
        return Ok(Rows::Parquet { rows: table.rows(), batches: Box::new(table.read(&part)?) });
    }
    let text = text(path)?;
    let columns = match format {
        Format::Csv => of_csv(&text, kinds)?,
        _ => of_json(&text)?,
    };
    let rows = columns.first().map_or(0, |(_, values)| values.len());
    if let Some((name, other)) = columns.iter().find(|(_, values)| values.len() != rows) {
        let text = format!("column {name} has {} values, the first has {rows}", other.len());
        return Err(Failure::usage(text));
    }
    if rows == 0 {
        return Err(Failure::usage(format!("{} has no rows", path.display())));
    }
    Ok(Rows::Whole { columns, rows, at: 0, at_once })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}

fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read =
        |from: &mut dyn Read, text: &mut String| from.take(MAX_TEXT + 1).read_to_string(text);
    let length = if path.as_os_str() == "-" {
        read(&mut std::io::stdin().lock(), &mut text)
    } else {
        File::open(path).and_then(|mut file| read(&mut file, &mut text))
    };
    let length = length.map_err(|error| unreadable(path, &error))?;
    if length as u64 > MAX_TEXT {
        let text = format!("{} is over 1 GiB: use a Parquet file", path.display());
        return Err(Failure::usage(text));
    }
    Ok(text)
}

/// Columns as lists, a list of rows, or a row on each line.
fn of_json(text: &str) -> Result<Vec<(String, Vec<Value>)>> {
    let wrong = |why: String| {
        let hint = "columns like {\"id\": [1, 2]}, rows like [{\"id\": 1}], or a row on each line";
        Failure::usage(why).hint(hint)
    };
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value.map_err(|error| wrong(format!("the rows are not JSON: {error}")))? {
            Value::Array(more) => rows.extend(more),
            value => rows.push(value),
        }
    }
    if let [Value::Object(columns)] = rows.as_mut_slice()
        && columns.values().all(Value::is_array)
        && !columns.is_empty()
    {
        let columns = std::mem::take(columns).into_iter();
        let list = |value| match value {
            Value::Array(values) => values,
            other => vec![other],
        };
        return Ok(columns.map(|(name, values)| (name, list(values))).collect());
    }
    let count = rows.len();
    let mut columns: Vec<(String, Vec<Value>)> = Vec::new();
    for (place, row) in rows.into_iter().enumerate() {
        let Value::Object(row) = row else {
            return Err(wrong(format!("row {place} is no object")));
        };
        for (name, value) in row {
            let known = columns.iter().position(|(known, _)| *known == name);
            let at = known.unwrap_or_else(|| {
                columns.push((name, vec![Value::Null; count]));
                columns.len() - 1
            });
            columns[at].1[place] = value;
        }
    }
    Ok(columns)
}

/// Text as the types of the view say; nothing at all is null.
fn of_csv(text: &str, kinds: &Columns) -> Result<Vec<(String, Vec<Value>)>> {
    let mut rows = csv::read(text)?.into_iter();
    let names = rows.next().ok_or_else(|| Failure::usage("the file is empty".to_owned()))?;
    let mut columns: Vec<(String, Vec<Value>)> =
        names.into_iter().map(|(name, _)| (name, Vec::new())).collect();
    for (place, row) in rows.enumerate() {
        if row.len() != columns.len() {
            let (line, found, wanted) = (place + 2, row.len(), columns.len());
            let text = format!("row {line} has {found} fields, the first line names {wanted}");
            return Err(Failure::usage(text));
        }
        for ((name, values), (field, quoted)) in columns.iter_mut().zip(row) {
            let kind = kinds.get(name.as_str()).and_then(Value::as_str);
            let value = typed(&field, quoted, kind).ok_or_else(|| {
                let (line, kind) = (place + 2, kind.unwrap_or_default());
                Failure::usage(format!("row {line}, {name}: `{field}` is no {kind}"))
            })?;
            values.push(value);
        }
    }
    Ok(columns)
}

fn typed(field: &str, quoted: bool, kind: Option<&str>) -> Option<Value> {
    if field.is_empty() && !quoted {
        return Some(Value::Null);
    }
    match kind {
        Some("int32" | "int64") => field.trim().parse::<i64>().ok().map(Value::from),
        Some("float32" | "float64") => {
            let number: f64 = field.trim().parse().ok()?;
            // What is no number has a name in JSON's place.
            Some(
                serde_json::Number::from_f64(number).map_or_else(|| special(number), Value::Number),
            )
        }
        Some("bool") => match field.trim() {
            "true" | "True" | "TRUE" | "1" => Some(Value::Bool(true)),
            "false" | "False" | "FALSE" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        Some(kind) if kind.starts_with("list<") => {
            serde_json::from_str(field).ok().filter(Value::is_array)
        }
        _ => Some(Value::from(field)),
    }
}

fn special(number: f64) -> Value {
    let name = if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    Value::from(name)
}

/// The columns of a batch of Parquet.
fn columns_of(batch: &Batch) -> Columns {
    let one = |(field, column): &(falaj_tables::Field, Column)| {
        let width = match &field.many {
            Many::Fixed(shape) => Some(shape.iter().product::<usize>()),
            Many::One | Many::Varied => None,
        };
        let value = |row: usize| {
            if column.is_missing(row) {
                return Value::Null;
            }
            let items = |from: usize, to: usize| {
                (from..to).map(|place| item(&column.items, place, &field.item)).collect()
            };
            match (&column.ends, width) {
                (Some(ends), _) => {
                    let from = if row == 0 { 0 } else { ends[row - 1] };
                    Value::Array(items(from, ends[row]))
                }
                (None, Some(width)) => Value::Array(items(row * width, (row + 1) * width)),
                (None, None) => item(&column.items, row, &field.item),
            }
        };
        (field.name.clone(), Value::Array((0..batch.rows()).map(value).collect()))
    };
    batch.columns().iter().map(one).collect()
}

fn item(items: &Data, place: usize, kind: &Item) -> Value {
    let float = |number: f64| {
        serde_json::Number::from_f64(number).map_or_else(|| special(number), Value::Number)
    };
    match (items, kind) {
        (Data::I64(all), Item::Time) => {
            let at = falaj_base::Timestamp::from_micros(all[place]);
            Value::from(at.to_string())
        }
        (Data::Bytes(all), Item::Text) => String::from_utf8_lossy(&all[place]).into(),
        (Data::Bytes(all), _) => STANDARD.encode(&all[place]).into(),
        (Data::Bool(all), _) => all[place].into(),
        (Data::U8(all), _) => all[place].into(),
        (Data::U16(all), _) => all[place].into(),
        (Data::U32(all), _) => all[place].into(),
        (Data::U64(all), _) => all[place].into(),
        (Data::I8(all), _) => all[place].into(),
        (Data::I16(all), _) => all[place].into(),
        (Data::I32(all), _) => all[place].into(),
        (Data::I64(all), _) => all[place].into(),
        (Data::F32(all), _) => float(f64::from(all[place])),
        (Data::F64(all), _) => float(all[place]),
        // Half numbers have no type of their own among features.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(columns: Vec<(String, Vec<Value>)>) -> Value {
        columns
            .into_iter()
            .map(|(name, values)| (name, Value::Array(values)))
            .collect::<Map<_, _>>()
            .into()
    }

    #[test]
    fn json_comes_in_three_shapes() {
        let expected = json!({ "id": [1, 2], "rate": [0.5, null] });
        for text in [
            r#"{"id": [1, 2], "rate": [0.5, null]}"#,
            r#"[{"id": 1, "rate": 0.5}, {"id": 2}]"#,
            "{\"id\": 1, \"rate\": 0.5}\n{\"id\": 2}\n",
        ] {
            assert_eq!(shown(of_json(text).unwrap()), expected, "{text}");
        }
        assert!(of_json("[1]").is_err() && of_json("{").is_err());
    }

    #[test]
    fn text_becomes_what_the_view_says() {
        let kinds = json!({ "id": "int64", "rate": "float32", "on": "bool", "tags": "list<string>",
            "name": "string" });
        let Value::Object(kinds) = kinds else { panic!() };
        let text = "id,rate,on,tags,name\n1,0.5,true,\"[\"\"a\"\"]\",7\n2,,,,\"\"\n3,nan,0,[],x\n";
        let expected = json!({ "id": [1, 2, 3], "rate": [0.5, null, "NaN"],
            "on": [true, null, false], "tags": [["a"], null, []], "name": ["7", "", "x"] });
        assert_eq!(shown(of_csv(text, &kinds).unwrap()), expected);
        for bad in ["id\nx\n", "on\nmaybe\n", "id,on\n1\n", "tags\n1\n", ""] {
            assert!(of_csv(bad, &kinds).is_err(), "{bad}");
        }
    }

    #[test]
    fn rows_come_some_at_a_time() {
        let columns = of_json(r#"{"id": [1, 2, 3]}"#).unwrap();
        let rows = Rows::Whole { columns, rows: 3, at: 0, at_once: 2 };
        let found: Vec<_> = rows.map(|some| Value::Object(some.unwrap())).collect();
        assert_eq!(found, [json!({ "id": [1, 2] }), json!({ "id": [3] })]);
    }
}
