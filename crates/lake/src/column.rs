//! Columns of a table, and the columns of a file that hold their values.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use falaj_base::{Error, Result};
use falaj_tables::decimal::named;

/// The key under which Parquet's numbers of columns stand in an Arrow schema.
const FIELD_ID: &str = "PARQUET:field_id";

/// A column as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: DataType,
    pub(crate) at: At,
}

/// How a file knows a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Name(String),
    /// By number. Files that number nothing are looked through by these names, if the table has any
    /// for them.
    Id {
        id: i32,
        names: Option<Vec<String>>,
    },
}

/// A type that is known, but whose values are not read: structs, maps, and what this does not know.
pub(crate) fn unread() -> DataType {
    DataType::Struct(Fields::empty())
}

pub(crate) fn moment(zone: bool) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.then(|| "UTC".into()))
}

pub(crate) fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

/// `decimal(10,2)`.
pub(crate) fn decimal(name: &str) -> Option<DataType> {
    named(name).map(|(precision, scale)| DataType::Decimal128(precision, scale))
}

impl Column {
    /// What the file calls it; none if the file does not have it.
    pub(crate) fn found<'a>(&self, file: &'a Schema) -> Option<&'a Field> {
        match &self.at {
            At::Name(name) => file.field_with_name(name).ok(),
            At::Id { id, names } => {
                if numbered(file) {
                    return file.fields().iter().map(|it| &**it).find(|it| number(it) == Some(*id));
                }
                let mut names = names.iter().flatten();
                names.find_map(|name| file.field_with_name(name).ok())
            }
        }
    }
}

/// Refuses a file whose columns nothing tells apart: all would be null.
pub(crate) fn known(columns: &[Column], file: &Schema, name: &str) -> Result<()> {
    let nameless = |it: &Column| matches!(&it.at, At::Id { names: None, .. });
    if columns.iter().any(nameless) && !numbered(file) {
        let allowed = "field ids, or a name mapping (`schema.name-mapping.default`)";
        return Err(Error::invalid(name, "columns without field ids", allowed));
    }
    Ok(())
}

fn number(field: &Field) -> Option<i32> {
    field.metadata().get(FIELD_ID).and_then(|text| text.parse().ok())
}

/// Whether a file numbers its columns.
fn numbered(file: &Schema) -> bool {
    file.fields().iter().any(|field| number(field).is_some())
}

/// Whether values of a file's type are values of the table's: columns may have grown wider since.
fn taken(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, Date32, Decimal128, FixedSizeBinary, Float32, Float64, Int8, Int16, Int32, Int64,
        LargeBinary, LargeList, LargeUtf8, List, Timestamp, Utf8,
    };
    match (from, to) {
        (Int8, Int16 | Int32 | Int64 | Float64)
        | (Int16, Int32 | Int64 | Float64)
        | (Int32, Int64 | Float64)
        | (Float32, Float64)
        | (LargeUtf8, Utf8)
        | (LargeBinary | FixedSizeBinary(_), Binary)
        | (Date32, Timestamp(_, None))
        | (Timestamp(..), Timestamp(..)) => true,
        (Decimal128(p, s), Decimal128(wide, scale)) => s == scale && p <= wide,
        (List(from) | LargeList(from), List(to)) => {
            from.data_type() == to.data_type() || taken(from.data_type(), to.data_type())
        }
        _ => false,
    }
}

/// The values of a file's column as the table's. `name` tells which, for the refusal.
pub(crate) fn conformed(name: &str, array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let from = array.data_type();
    if from == to {
        return Ok(array.clone());
    }
    if *to == unread() || !taken(from, to) {
        return Err(Error::invalid(name, from, to));
    }
    let cast = |array: &ArrayRef, to: &DataType| {
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(array, to, &strict).map_err(|error| {
            let why: String = error.to_string().chars().take(200).collect();
            Error::invalid(name, why, format!("values of the type {to}"))
        })
    };
    match (from, to) {
        // With or without a zone it is the same moment: the label changes, and perhaps the unit.
        (DataType::Timestamp(..), DataType::Timestamp(unit, zone)) => {
            let bare = cast(&relabelled(array), &DataType::Timestamp(*unit, None))?;
            let times = bare.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(times.with_timezone_opt(zone.clone())))
        }
        (DataType::List(_) | DataType::LargeList(_), DataType::List(inner)) => {
            let small = DataType::List(Arc::new(Field::new_list_field(element(from), true)));
            let listed = if *from == small { array.clone() } else { cast(array, &small)? };
            let listed = listed.as_list::<i32>();
            let values = conformed(name, listed.values(), inner.data_type())?;
            let made = ListArray::try_new(
                inner.clone(),
                listed.offsets().clone(),
                values,
                listed.nulls().cloned(),
            );
            Ok(Arc::new(made.map_err(Error::internal)?))
        }
        _ => cast(array, to),
    }
}

fn element(list: &DataType) -> DataType {
    match list {
        DataType::List(field) | DataType::LargeList(field) => field.data_type().clone(),
        other => other.clone(),
    }
}

/// Times without their zone: the numbers are those of UTC either way.
fn relabelled(array: &ArrayRef) -> ArrayRef {
    use arrow_array::types::{
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    };
    macro_rules! bare {
        ($type:ty) => {
            Arc::new(array.as_primitive::<$type>().clone().with_timezone_opt(None::<Arc<str>>))
        };
    }
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, Some(_)) => bare!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, Some(_)) => bare!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => bare!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, Some(_)) => bare!(TimestampNanosecondType),
        _ => array.clone(),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int64Type;
    use arrow_array::{Float64Array, Int32Array, Int64Array, TimestampNanosecondArray};

    use super::*;

    #[test]
    fn columns_may_have_grown_wider_and_nothing_else() {
        let narrow: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let wide = conformed("x", &narrow, &DataType::Int64).unwrap();
        assert_eq!(wide.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(1), None]));
        for (from, to) in [
            (Arc::new(Int64Array::from(vec![1])) as ArrayRef, DataType::Int32),
            (Arc::new(Float64Array::from(vec![1.0])), DataType::Float32),
            (Arc::new(Int64Array::from(vec![1])), DataType::Utf8),
            (Arc::new(Int64Array::from(vec![1])), unread()),
        ] {
            assert_eq!(conformed("x", &from, &to).unwrap_err().field(), Some("x"), "{to}");
        }
    }

    #[test]
    fn a_moment_is_the_same_with_and_without_its_zone() {
        // As Spark's oldest timestamps are read.
        let nanos: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_500_000, -1_000]));
        for zone in [true, false] {
            let micros = conformed("x", &nanos, &moment(zone)).unwrap();
            assert_eq!(micros.data_type(), &moment(zone));
            let values = micros.as_primitive::<TimestampMicrosecondType>().values();
            assert_eq!(&**values, [1_500, -1]);
            let again = conformed("x", &micros, &moment(!zone)).unwrap();
            let again = again.as_primitive::<TimestampMicrosecondType>().values().clone();
            assert_eq!(*values, again);
        }
    }

    #[test]
    fn lists_are_taken_value_by_value() {
        let lists = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
        ]);
        let wide = conformed("x", &(Arc::new(lists) as ArrayRef), &list(DataType::Int64)).unwrap();
        assert_eq!(wide.data_type(), &list(DataType::Int64));
        assert_eq!((wide.len(), wide.null_count()), (2, 1));
    }
}
