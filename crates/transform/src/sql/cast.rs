//! `CAST`: from one kind to another, or why not.

use falaj_base::{Error, Result};

use super::calendar;
use super::column::Column;
use super::eval::{Row, Rows};
use super::node::{Kind, Node};
use super::parse::shortened;
use super::text::Texts;

/// Whether there is a way at all.
pub(super) fn possible(from: Kind, to: Kind) -> bool {
    use Kind::{Bool, Bytes, Float, Int, Null, Text, Time};
    from == to
        || matches!(
            (from, to),
            (Null, _)
                | (Bool, Int | Float | Text)
                | (Int | Float, Bool | Int | Float | Text)
                | (Text, Bool | Int | Float | Bytes | Time)
                | (Bytes | Time, Text)
        )
}

/// From floats, towards zero.
fn whole(value: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let cut = value.trunc();
    #[allow(clippy::cast_possible_truncation, reason = "within the ends")]
    (-END..END).contains(&cut).then_some(cut as i64)
}

fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => Some(true),
        "false" | "f" | "0" => Some(false),
        _ => None,
    }
}

/// A number as other languages write it; `inf` and `nan` are texts.
fn float(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    text.bytes().all(plain).then(|| text.parse().ok()).flatten()
}

/// A float as text, so that it reads as one.
fn shown(value: f64) -> String {
    format!("{value:?}")
}

pub(super) fn cast(
    node: &Node,
    column: &Column,
    (to, lenient): (Kind, bool),
    rows: &Rows<'_>,
) -> Result<Column> {
    let wrong = |value: String| {
        if lenient { Row::Null } else { Row::Wrong(format!("{value} is no {to}")) }
    };
    macro_rules! each {
        ($variant:ident, $values:expr, $of:expr) => {{
            let values = $values;
            let of = $of;
            let found = rows.each(node, |row| {
                if arrow_array::Array::is_null(values, row) {
                    return Row::Null;
                }
                of(values.value(row))
            })?;
            Column::$variant(found.into_iter().collect())
        }};
    }
    let some = |found: Option<i64>, shown: String| found.map_or_else(|| wrong(shown), Row::Value);
    let texts = |of: &dyn Fn(usize) -> Row<String>| -> Result<Column> {
        let mut made = Texts::new(rows.held);
        for row in 0..rows.count {
            match rows.one(node, row, of(row))? {
                Some(text) => made.push(Some(&text))?,
                None => made.push(None)?,
            }
        }
        Ok(made.finish())
    };
    Ok(match (column, to) {
        (Column::Null(count), to) => Column::null(to, *count),
        (Column::Bool(values), Kind::Int) => {
            each!(Int, values, |value: bool| Row::Value(i64::from(value)))
        }
        (Column::Bool(values), Kind::Float) => {
            each!(Float, values, |value: bool| Row::Value(f64::from(u8::from(value))))
        }
        (Column::Int(values), Kind::Bool) => each!(Bool, values, |value| Row::Value(value != 0)),
        #[allow(clippy::cast_precision_loss, reason = "the nearest float is wanted")]
        (Column::Int(values), Kind::Float) => {
            each!(Float, values, |value| Row::Value(value as f64))
        }
        (Column::Float(values), Kind::Bool) => {
            each!(Bool, values, |value: f64| Row::Value(value != 0.0))
        }
        (Column::Float(values), Kind::Int) => {
            each!(Int, values, |value: f64| some(whole(value), shown(value)))
        }
        (Column::Text(values), Kind::Int) => each!(Int, values, |value: &str| {
            some(value.trim().parse().ok(), format!("'{}'", shortened(value)))
        }),
        (Column::Text(values), Kind::Float) => each!(Float, values, |value: &str| {
            let shown = format!("'{}'", shortened(value));
            float(value).map_or_else(|| wrong_float(lenient, shown), Row::Value)
        }),
        (Column::Text(values), Kind::Bool) => each!(Bool, values, |value: &str| {
            match boolean(value) {
                Some(value) => Row::Value(value),
                None if lenient => Row::Null,
                None => Row::Wrong(format!("'{}' is no bool", shortened(value))),
            }
        }),
        (Column::Text(values), Kind::Time) => each!(Time, values, |value: &str| {
            some(calendar::read(value), format!("'{}'", shortened(value)))
        }),
        (Column::Text(values), Kind::Bytes) => {
            let bytes = values.iter().map(|text| text.map(str::as_bytes));
            super::text::bytes(bytes, rows.held)?
        }
        (column, Kind::Text) => texts(&|row| {
            if column.is_null(row) {
                return Row::Null;
            }
            match column {
                Column::Bool(values) => Row::Value(values.value(row).to_string()),
                Column::Int(values) => Row::Value(values.value(row).to_string()),
                Column::Float(values) => Row::Value(shown(values.value(row))),
                Column::Text(values) => Row::Value(values.value(row).to_owned()),
                Column::Time(values) => {
                    let micros = values.value(row);
                    match calendar::write(micros) {
                        Some(text) => Row::Value(text),
                        None if lenient => Row::Null,
                        None => Row::Wrong(format!("{micros} µs since 1970 have no date")),
                    }
                }
                Column::Bytes(values) => match std::str::from_utf8(values.value(row)) {
                    Ok(text) => Row::Value(text.to_owned()),
                    Err(_) if lenient => Row::Null,
                    Err(_) => Row::Wrong("the bytes are no UTF-8".to_owned()),
                },
                _ => Row::Null,
            }
        })?,
        (column, _) if kind_of(column) == to => column.clone(),
        _ => return Err(Error::internal("a cast that was not checked")),
    })
}

fn wrong_float(lenient: bool, shown: String) -> Row<f64> {
    if lenient { Row::Null } else { Row::Wrong(format!("{shown} is no float64")) }
}

fn kind_of(column: &Column) -> Kind {
    match column {
        Column::Bool(_) => Kind::Bool,
        Column::Int(_) => Kind::Int,
        Column::Float(_) => Kind::Float,
        Column::Text(_) => Kind::Text,
        Column::Bytes(_) => Kind::Bytes,
        Column::Time(_) => Kind::Time,
        Column::Other(_) => Kind::Other,
        Column::Null(_) => Kind::Null,
    }
}
