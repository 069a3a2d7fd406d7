//! One value that all rows of a file have, as an array of length one.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
    UInt32Array, new_null_array,
};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::take::take;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use falaj_base::{Error, Result};
use falaj_tables::decimal::steps;

/// The value a text stands for, as Delta writes those of partitions; none if it stands for no such
/// value. A type whose values are not read has none.
pub(crate) fn of_text(kind: &DataType, text: Option<&str>) -> Option<ArrayRef> {
    // Delta writes null as an empty text, whatever the type.
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Some(new_null_array(kind, 1));
    };
    macro_rules! number {
        ($array:ident, $number:ty) => {
            Arc::new($array::from(vec![text.parse::<$number>().ok()?]))
        };
    }
    Some(match kind {
        DataType::Boolean => match text {
            "true" => Arc::new(BooleanArray::from(vec![true])),
            "false" => Arc::new(BooleanArray::from(vec![false])),
            _ => return None,
        },
        DataType::Int8 => number!(Int8Array, i8),
        DataType::Int16 => number!(Int16Array, i16),
        DataType::Int32 => number!(Int32Array, i32),
        DataType::Int64 => number!(Int64Array, i64),
        DataType::Float32 => Arc::new(Float32Array::from(vec![float(text)?.parse::<f32>().ok()?])),
        DataType::Float64 => Arc::new(Float64Array::from(vec![float(text)?.parse::<f64>().ok()?])),
        DataType::Utf8 => Arc::new(StringArray::from(vec![text])),
        DataType::Binary => Arc::new(BinaryArray::from(vec![unescaped(text)?.as_slice()])),
        DataType::Date32 => Arc::new(Date32Array::from(vec![days(text)?])),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = TimestampMicrosecondArray::from(vec![micros(text)?]);
            Arc::new(micros.with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(precision, scale) => {
            let steps = Decimal128Array::from(vec![steps(text, *precision, *scale)?]);
            Arc::new(steps.with_precision_and_scale(*precision, *scale).ok()?)
        }
        _ => return None,
    })
}

/// How Java writes numbers that are none.
fn float(text: &str) -> Option<&str> {
    match text {
        "NaN" => Some("NaN"),
        "Infinity" => Some("inf"),
        "-Infinity" => Some("-inf"),
        // Rust reads more spellings than anybody writes.
        text if text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) => Some(text),
        _ => None,
    }
}

/// Bytes as Delta writes them: a character for each.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn days(text: &str) -> Option<i32> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    i32::try_from(date.signed_duration_since(DateTime::UNIX_EPOCH.date_naive()).num_days()).ok()
}

/// With a zone, or without and then in UTC.
fn micros(text: &str) -> Option<i64> {
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Some(moment.timestamp_micros());
    }
    let plain = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f")
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f"));
    plain.ok().map(|moment| moment.and_utc().timestamp_micros())
}

/// The value a number stands for: a count of days or microseconds for times.
pub(crate) fn of_number(kind: &DataType, number: i64) -> Option<ArrayRef> {
    Some(match kind {
        DataType::Int32 => Arc::new(Int32Array::from(vec![i32::try_from(number).ok()?])),
        DataType::Int64 => Arc::new(Int64Array::from(vec![number])),
        DataType::Date32 => Arc::new(Date32Array::from(vec![i32::try_from(number).ok()?])),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = TimestampMicrosecondArray::from(vec![number]);
            Arc::new(micros.with_timezone_opt(zone.clone()))
        }
        _ => return None,
    })
}

/// The value so many times.
pub(crate) fn repeated(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    take(one, &UInt32Array::from(vec![0; rows]), None).map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::TimestampMicrosecondType;

    use super::*;
    use crate::column::moment;

    #[test]
    fn texts_stand_for_values_of_their_type() {
        for (kind, good, bad) in [
            (DataType::Boolean, vec!["true", "false"], vec!["TRUE", "1"]),
            (DataType::Int32, vec!["-1", "2147483647"], vec!["2147483648", "1.0", "x"]),
            (DataType::Int64, vec!["9223372036854775807"], vec!["1e3"]),
            (DataType::Float64, vec!["1.5", "-Infinity", "NaN", "1E10"], vec!["inf", "nan", "x"]),
            (DataType::Utf8, vec!["a b", "é"], vec![]),
            (DataType::Binary, vec!["\u{1}\u{ff}"], vec!["\u{100}"]),
            (DataType::Date32, vec!["2026-02-28"], vec!["2026-02-30", "28.2.2026"]),
            (
                DataType::Decimal128(5, 2),
                vec!["12.50", "-0.01", "7", "999.99"],
                vec!["12.505", "1000", "1e2", ".5", "--1", "x"],
            ),
            (
                moment(true),
                vec!["2026-01-01 00:00:00", "2026-01-01 00:00:00.123456", "2026-01-01T00:00:00.5Z"],
                vec!["2026-01-01", "soon"],
            ),
        ] {
            for text in good {
                let array = of_text(&kind, Some(text)).unwrap_or_else(|| panic!("{kind} {text}"));
                assert_eq!((array.data_type(), array.len(), array.null_count()), (&kind, 1, 0));
            }
            for text in bad {
                assert!(of_text(&kind, Some(text)).is_none(), "{kind} {text}");
            }
            for none in [None, Some("")] {
                assert_eq!(of_text(&kind, none).unwrap().null_count(), 1);
            }
        }
        let one = of_text(&moment(false), Some("1970-01-01 00:00:01")).unwrap();
        let many = repeated(&one, 3).unwrap();
        assert_eq!(&**many.as_primitive::<TimestampMicrosecondType>().values(), [1_000_000; 3]);
    }
}
