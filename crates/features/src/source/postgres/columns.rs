//! Columns of a database as Arrow has them. Only types whose values are values of ours.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use falaj_base::{Error, Result};
use tokio_postgres::types::{FromSql, Kind, Type};
use tokio_postgres::{Column, Row};

/// Microseconds between the database's beginning of time, 2000, and ours.
const EPOCH: i64 = 946_684_800_000_000;

const ALLOWED: &str = "boolean, smallint, integer, bigint, real, double precision, text, varchar, \
                       char, bytea, timestamp, timestamptz or arrays of them: cast it in a `query`";

/// A kind of single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Text,
    Bytes,
    /// With a zone, or without.
    Time(bool),
}

/// A column that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    item: Item,
    list: bool,
}

fn item(kind: &Type) -> Option<Item> {
    Some(match *kind {
        Type::BOOL => Item::Bool,
        Type::INT2 => Item::Int2,
        Type::INT4 => Item::Int4,
        Type::INT8 => Item::Int8,
        Type::FLOAT4 => Item::Float4,
        Type::FLOAT8 => Item::Float8,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => Item::Text,
        Type::BYTEA => Item::Bytes,
        Type::TIMESTAMPTZ => Item::Time(true),
        Type::TIMESTAMP => Item::Time(false),
        _ => return None,
    })
}

impl Wanted {
    pub(super) fn new(name: &str, kind: &Type) -> Option<Self> {
        let (kind, list) = match kind.kind() {
            Kind::Array(inner) => (inner, true),
            _ => (kind, false),
        };
        Some(Self { name: name.to_owned(), item: item(kind)?, list })
    }

    /// The column of this name; else which there are, or that its type is not taken.
    pub(super) fn found(name: &str, all: &[Column], place: impl Fn() -> String) -> Result<Self> {
        let mut same = all.iter().filter(|column| column.name() == name);
        let Some(column) = same.next() else {
            let names: Vec<&str> = all.iter().map(Column::name).take(50).collect();
            return Err(Error::invalid(place(), "absent", format!("one of {}", names.join(", "))));
        };
        if same.next().is_some() {
            return Err(Error::invalid(place(), "there twice", "columns of different names"));
        }
        Self::new(name, column.type_())
            .ok_or_else(|| Error::invalid(place(), column.type_(), ALLOWED))
    }

    /// How SQL tells how long a value is, if it can be long.
    pub(super) fn length(&self, name: &str) -> Option<String> {
        match (self.list, self.item) {
            (true, _) => Some(format!("octet_length({name}::text)")),
            (false, Item::Text | Item::Bytes) => Some(format!("octet_length({name})")),
            (false, _) => None,
        }
    }

    /// How rows are put in an order by it: texts by their bytes, which no setting changes.
    pub(super) fn order(&self, name: &str) -> String {
        match self.item {
            Item::Text => format!("{name} COLLATE \"C\""),
            _ => name.to_owned(),
        }
    }

    /// How SQL calls its type, if its values are times.
    pub(super) fn time(&self) -> Option<&'static str> {
        match (self.list, self.item) {
            (false, Item::Time(true)) => Some("TIMESTAMPTZ"),
            (false, Item::Time(false)) => Some("TIMESTAMP"),
            _ => None,
        }
    }

    fn single(&self) -> DataType {
        match self.item {
            Item::Bool => DataType::Boolean,
            Item::Int2 => DataType::Int16,
            Item::Int4 => DataType::Int32,
            Item::Int8 => DataType::Int64,
            Item::Float4 => DataType::Float32,
            Item::Float8 => DataType::Float64,
            Item::Text => DataType::Utf8,
            Item::Bytes => DataType::Binary,
            Item::Time(zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.then(|| "UTC".into()))
            }
        }
    }

    fn kind(&self) -> DataType {
        if self.list {
            return DataType::List(Arc::new(Field::new_list_field(self.single(), true)));
        }
        self.single()
    }
}

pub(super) fn schema(wanted: &[Wanted]) -> SchemaRef {
    let field = |it: &Wanted| Field::new(&it.name, it.kind(), true);
    Arc::new(Schema::new(wanted.iter().map(field).collect::<Vec<_>>()))
}

/// A time in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Micros(i64);

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let since: i64 = i64::from_be_bytes(raw.try_into()?);
        // Neither the end of time nor its beginning is a time.
        let finite = ![i64::MAX, i64::MIN].contains(&since);
        let micros = since.checked_add(EPOCH).filter(|_| finite);
        micros.map(Micros).ok_or_else(|| "a time without an end".into())
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TIMESTAMP | Type::TIMESTAMPTZ)
    }
}

/// The values of a column, of some rows, as an array; and about how many bytes they take.
pub(super) fn array(wanted: &Wanted, place: usize, rows: &[Row]) -> Result<ArrayRef, String> {
    let wrong = |error: tokio_postgres::Error| {
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    };
    macro_rules! one {
        ($builder:expr, $type:ty, $value:expr) => {{
            let mut builder = $builder;
            for row in rows {
                let value: Option<$type> = row.try_get(place).map_err(wrong)?;
                builder.append_option(value.map($value));
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    macro_rules! many {
        ($builder:expr, $type:ty, $value:expr) => {{
            let field = Arc::new(Field::new_list_field(wanted.single(), true));
            let mut builder = ListBuilder::new($builder).with_field(field);
            for row in rows {
                let values: Option<Vec<Option<$type>>> = row.try_get(place).map_err(wrong)?;
                for value in values.iter().flatten().copied() {
                    builder.values().append_option(value.map($value));
                }
                builder.append(values.is_some());
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    macro_rules! both {
        ($builder:expr, $type:ty, $value:expr) => {
            if wanted.list { many!($builder, $type, $value) } else { one!($builder, $type, $value) }
        };
    }
    Ok(match wanted.item {
        Item::Bool => both!(BooleanBuilder::new(), bool, |it| it),
        Item::Int2 => both!(Int16Builder::new(), i16, |it| it),
        Item::Int4 => both!(Int32Builder::new(), i32, |it| it),
        Item::Int8 => both!(Int64Builder::new(), i64, |it| it),
        Item::Float4 => both!(Float32Builder::new(), f32, |it| it),
        Item::Float8 => both!(Float64Builder::new(), f64, |it| it),
        Item::Text => both!(StringBuilder::new(), &str, |it: &str| it.to_owned()),
        Item::Bytes => both!(BinaryBuilder::new(), &[u8], |it: &[u8]| it.to_vec()),
        Item::Time(_) => {
            let builder = TimestampMicrosecondBuilder::new().with_data_type(wanted.single());
            both!(builder, Micros, |it: Micros| it.0)
        }
    })
}

/// About how many bytes a row takes as it came.
pub(super) fn size(row: &Row) -> usize {
    row.raw_size_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_taken_only_where_nothing_is_lost() {
        for (kind, taken) in [
            (Type::INT8, Some(DataType::Int64)),
            (Type::INT2, Some(DataType::Int16)),
            (Type::VARCHAR, Some(DataType::Utf8)),
            (Type::TIMESTAMP, Some(DataType::Timestamp(TimeUnit::Microsecond, None))),
            (Type::NUMERIC, None),
            (Type::DATE, None),
            (Type::JSONB, None),
            (Type::UUID, None),
        ] {
            assert_eq!(Wanted::new("x", &kind).map(|it| it.kind()), taken, "{kind}");
        }
        let list = Wanted::new("x", &Type::FLOAT4_ARRAY).unwrap().kind();
        let inner = Arc::new(Field::new_list_field(DataType::Float32, true));
        assert_eq!(list, DataType::List(inner));
        assert!(Wanted::new("x", &Type::NUMERIC_ARRAY).is_none());
    }

    #[test]
    fn a_time_without_an_end_is_none() {
        let read = |number: i64| Micros::from_sql(&Type::TIMESTAMP, &number.to_be_bytes());
        assert_eq!(read(0).unwrap().0, EPOCH);
        for bad in [i64::MAX, i64::MIN, i64::MAX - 5] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
