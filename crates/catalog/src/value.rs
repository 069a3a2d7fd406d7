//! Columns of whatever type a file has, as the few that are compared, counted and shown.
//!
//! Must hold: [`Column::encode`] gives equal bytes for equal values and different bytes for
//! different ones, whatever width or layout their columns have: rows of two versions are compared by
//! it. Bytes of one value cannot run into those of the next.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeBinaryArray, LargeListArray,
    LargeStringArray, StructArray, UInt64Array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{can_cast_types, cast};
use arrow_schema::{DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, Result};
use serde_json::{Map, Value as Json};

/// The longest text of one value that is shown, in bytes.
const SHOWN: usize = 1024;

/// A column as one of few kinds.
#[derive(Debug)]
pub(crate) enum Column {
    Bool(BooleanArray),
    Int(Int64Array),
    Large(UInt64Array),
    Float(Float64Array),
    Text(LargeStringArray),
    Bytes(LargeBinaryArray),
    /// A moment, in so many nanoseconds, and the type that it is shown as.
    Time(Int64Array, i128, ArrayRef),
    List(LargeListArray, Box<Column>),
    Struct(StructArray, Vec<(String, Column)>),
    /// Anything else, as its text.
    Other(LargeStringArray),
}

impl Column {
    pub(crate) fn new(array: &ArrayRef) -> Result<Self> {
        let to = |kind: &DataType| cast(array, kind).map_err(Error::internal);
        Ok(match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean().clone()),
            DataType::UInt64 => Self::Large(array.as_primitive::<UInt64Type>().clone()),
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32 => {
                Self::Int(to(&DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                Self::Float(to(&DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Self::Text(to(&DataType::LargeUtf8)?.as_string::<i64>().clone())
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                Self::Bytes(to(&DataType::LargeBinary)?.as_binary::<i64>().clone())
            }
            DataType::Timestamp(unit, zone) => {
                let nanos = match unit {
                    TimeUnit::Second => 1_000_000_000,
                    TimeUnit::Millisecond => 1_000_000,
                    TimeUnit::Microsecond => 1000,
                    TimeUnit::Nanosecond => 1,
                };
                let raw = to(&DataType::Int64)?.as_primitive::<Int64Type>().clone();
                // Zones are not known here by their names; a moment is the same in each of them.
                let zone = zone.as_ref().map(|_| "+00:00".into());
                let shown =
                    cast(&raw, &DataType::Timestamp(*unit, zone)).map_err(Error::internal)?;
                Self::Time(raw, nanos, shown)
            }
            DataType::Dictionary(_, inner) => return Self::new(&to(inner)?),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let lists = to(&DataType::LargeList(item.clone()))?.as_list::<i64>().clone();
                let items = Self::new(lists.values())?;
                Self::List(lists, Box::new(items))
            }
            DataType::Struct(fields) => {
                let rows = array.as_struct().clone();
                let inner = fields.iter().zip(rows.columns());
                let inner =
                    inner.map(|(field, column)| Ok((field.name().clone(), Self::new(column)?)));
                let inner = inner.collect::<Result<Vec<_>>>()?;
                Self::Struct(rows, inner)
            }
            other if can_cast_types(other, &DataType::LargeUtf8) => {
                Self::Other(to(&DataType::LargeUtf8)?.as_string::<i64>().clone())
            }
            _ => Self::Other(formatted(array)?),
        })
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Bool(all) => all.is_null(row),
            Self::Int(all) | Self::Time(all, ..) => all.is_null(row),
            Self::Large(all) => all.is_null(row),
            Self::Float(all) => all.is_null(row),
            Self::Text(all) | Self::Other(all) => all.is_null(row),
            Self::Bytes(all) => all.is_null(row),
            Self::List(all, _) => all.is_null(row),
            Self::Struct(all, _) => all.is_null(row),
        }
    }

    /// Appends what tells this value from any other.
    pub(crate) fn encode(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.push(0);
            return;
        }
        match self {
            Self::Bool(all) => out.extend([1, u8::from(all.value(row))]),
            Self::Int(all) => integer(out, all.value(row).into()),
            Self::Large(all) => integer(out, all.value(row).into()),
            Self::Float(all) => {
                // Zeros of both signs are equal, and whatever is no number is the same nothing.
                let value = all.value(row);
                let value = match value {
                    _ if value == 0.0 => 0.0,
                    _ if value.is_nan() => f64::NAN,
                    _ => value,
                };
                out.push(3);
                out.extend(value.to_bits().to_le_bytes());
            }
            Self::Text(all) => bytes(out, 4, all.value(row).as_bytes()),
            Self::Bytes(all) => bytes(out, 5, all.value(row)),
            Self::Time(all, nanos, _) => {
                out.push(6);
                out.extend((i128::from(all.value(row)) * nanos).to_le_bytes());
            }
            Self::List(all, items) => {
                let (from, to) = ends(all, row);
                out.push(7);
                out.extend(((to - from) as u64).to_le_bytes());
                (from..to).for_each(|item| items.encode(item, out));
            }
            Self::Struct(_, fields) => {
                out.push(8);
                out.extend((fields.len() as u64).to_le_bytes());
                for (name, column) in fields {
                    bytes(out, 4, name.as_bytes());
                    column.encode(row, out);
                }
            }
            Self::Other(all) => bytes(out, 9, all.value(row).as_bytes()),
        }
    }

    /// The value for people: long ones are cut.
    pub(crate) fn json(&self, row: usize) -> Json {
        if self.is_null(row) {
            return Json::Null;
        }
        match self {
            Self::Bool(all) => all.value(row).into(),
            Self::Int(all) => all.value(row).into(),
            Self::Large(all) => all.value(row).into(),
            Self::Float(all) => {
                let value = all.value(row);
                if value.is_finite() { value.into() } else { value.to_string().into() }
            }
            Self::Text(all) | Self::Other(all) => cut(all.value(row)).into(),
            Self::Bytes(all) => {
                let value = all.value(row);
                STANDARD.encode(&value[..value.len().min(SHOWN)]).into()
            }
            Self::Time(_, _, array) => {
                let text = formatter(array).map(|it| it.value(row).to_string());
                text.unwrap_or_default().into()
            }
            Self::List(all, items) => {
                let (from, to) = ends(all, row);
                (from..to.min(from + SHOWN)).map(|item| items.json(item)).collect()
            }
            Self::Struct(_, fields) => {
                let shown = fields.iter().map(|(name, column)| (name.clone(), column.json(row)));
                Json::Object(shown.collect::<Map<_, _>>())
            }
        }
    }
}

/// Where the items of a list are.
fn ends(lists: &LargeListArray, row: usize) -> (usize, usize) {
    let end = |place: usize| usize::try_from(lists.value_offsets()[place]).unwrap_or(0);
    (end(row), end(row + 1))
}

fn integer(out: &mut Vec<u8>, value: i128) {
    out.push(2);
    out.extend(value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value);
}

/// A text of bounded length, cut between characters.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let mut end = SHOWN;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

fn formatter(array: &ArrayRef) -> Result<ArrayFormatter<'_>> {
    const OPTIONS: FormatOptions<'static> = FormatOptions::new();
    ArrayFormatter::try_new(array.as_ref(), &OPTIONS).map_err(Error::internal)
}

fn formatted(array: &ArrayRef) -> Result<LargeStringArray> {
    let texts = formatter(array)?;
    let text = |row: usize| array.is_valid(row).then(|| texts.value(row).to_string());
    Ok((0..array.len()).map(text).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        Date32Array, Decimal128Array, DictionaryArray, Float32Array, Int32Array, ListArray,
        StringArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    };

    use super::*;

    fn encoded(array: ArrayRef) -> Vec<Vec<u8>> {
        let column = Column::new(&array).unwrap();
        let one = |row| {
            let mut out = Vec::new();
            column.encode(row, &mut out);
            out
        };
        (0..array.len()).map(one).collect()
    }

    #[test]
    fn equal_values_are_equal_in_any_width() {
        let pairs: Vec<(ArrayRef, ArrayRef)> = vec![
            (Arc::new(Int32Array::from(vec![1, -2])), Arc::new(Int64Array::from(vec![1, -2]))),
            (Arc::new(UInt64Array::from(vec![1])), Arc::new(Int64Array::from(vec![1]))),
            (
                Arc::new(Float32Array::from(vec![0.5, -0.0])),
                Arc::new(Float64Array::from(vec![0.5, 0.0])),
            ),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![7])),
                Arc::new(TimestampNanosecondArray::from(vec![7000]).with_timezone("UTC")),
            ),
            (
                Arc::new(["a", "b"].into_iter().collect::<DictionaryArray<Int32Type>>()),
                Arc::new(StringArray::from(vec!["a", "b"])),
            ),
        ];
        for (left, right) in pairs {
            assert_eq!(encoded(left), encoded(right));
        }
    }

    #[test]
    fn different_values_are_different() {
        let list = |items: Vec<Option<i32>>| -> ArrayRef {
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(items)]))
        };
        let all: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![None::<i32>])),
            Arc::new(Int32Array::from(vec![0])),
            Arc::new(Float64Array::from(vec![0.0])),
            Arc::new(BooleanArray::from(vec![false])),
            Arc::new(StringArray::from(vec![""])),
            Arc::new(StringArray::from(vec!["0"])),
            Arc::new(LargeBinaryArray::from(vec![&b""[..]])),
            Arc::new(TimestampMicrosecondArray::from(vec![0])),
            Arc::new(Date32Array::from(vec![0])),
            Arc::new(Decimal128Array::from(vec![0]).with_precision_and_scale(5, 2).unwrap()),
            list(vec![]),
            list(vec![None]),
            list(vec![Some(0)]),
        ];
        let found: std::collections::BTreeSet<_> =
            all.iter().flat_map(|array| encoded(array.clone())).collect();
        assert_eq!(found.len(), all.len());
    }

    #[test]
    fn values_are_shown_as_people_write_them() {
        let time: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![0]).with_timezone("UTC"));
        assert_eq!(Column::new(&time).unwrap().json(0), "1970-01-01T00:00:00Z");
        let nan: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN]));
        assert_eq!(Column::new(&nan).unwrap().json(0), "NaN");
        let long: ArrayRef = Arc::new(StringArray::from(vec!["é".repeat(2000)]));
        assert!(Column::new(&long).unwrap().json(0).as_str().unwrap().len() < SHOWN + 8);
    }
}
