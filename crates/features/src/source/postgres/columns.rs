//! Columns of a database as Arrow has them. Only types whose values are values of ours.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder,
    Float64Builder, Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use falaj_base::{Error, Result};
use falaj_online::Decimal;
use tokio_postgres::types::{FromSql, Kind, Type};
use tokio_postgres::{Column, Row};

/// Microseconds between the database's beginning of time, 2000, and ours.
const EPOCH: i64 = 946_684_800_000_000;
/// The same in days.
const EPOCH_DAYS: i32 = 10_957;

const ALLOWED: &str = "boolean, smallint, integer, bigint, real, double precision, text, varchar, \
                       char, bytea, timestamp, timestamptz, date, numeric or arrays of them: cast \
                       it in a `query`";

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
    Date,
    /// As the view has it: the database does not say how many digits there are.
    Numeric(Decimal),
}

/// A column that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    item: Item,
    list: bool,
}

fn item(kind: &Type, decimal: Option<Decimal>) -> Option<Item> {
    Some(match *kind {
        Type::DATE => Item::Date,
        Type::NUMERIC => Item::Numeric(decimal?),
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
    /// `decimal` is what the view says of a column of decimals.
    pub(super) fn new(name: &str, kind: &Type, decimal: Option<Decimal>) -> Option<Self> {
        let (kind, list) = match kind.kind() {
            Kind::Array(inner) => (inner, true),
            _ => (kind, false),
        };
        Some(Self { name: name.to_owned(), item: item(kind, decimal)?, list })
    }

    /// The column of this name; else which there are, or that its type is not taken.
    pub(super) fn found(
        name: &str,
        all: &[Column],
        decimal: Option<Decimal>,
        place: impl Fn() -> String,
    ) -> Result<Self> {
        let mut same = all.iter().filter(|column| column.name() == name);
        let Some(column) = same.next() else {
            let names: Vec<&str> = all.iter().map(Column::name).take(50).collect();
            return Err(Error::invalid(place(), "absent", format!("one of {}", names.join(", "))));
        };
        if same.next().is_some() {
            return Err(Error::invalid(place(), "there twice", "columns of different names"));
        }
        Self::new(name, column.type_(), decimal)
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
            Item::Date => DataType::Date32,
            Item::Numeric(of) => DataType::Decimal128(of.precision(), of.scale().cast_signed()),
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

/// A day, counted from 1970.
#[derive(Clone, Copy, Debug)]
struct Day(i32);

impl<'a> FromSql<'a> for Day {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let since = i32::from_be_bytes(raw.try_into()?);
        let finite = ![i32::MAX, i32::MIN].contains(&since);
        let day = since.checked_add(EPOCH_DAYS).filter(|_| finite);
        day.map(Day).ok_or_else(|| "a day without an end".into())
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::DATE
    }
}

/// A number as the database has it: digits of ten thousand each.
#[derive(Clone, Copy, Debug)]
struct Numeric<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Numeric<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::NUMERIC
    }
}

impl Numeric<'_> {
    /// The steps of such a decimal; why there are none, if it has more digits, or is no number.
    fn steps(self, of: Decimal) -> Result<i128, String> {
        let part = |place: usize| {
            let bytes = self.0.get(place * 2..place * 2 + 2)?;
            Some(i16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let wrong = || format!("a number that is no {of}");
        let (count, weight, sign) =
            (part(0).ok_or_else(wrong)?, part(1).ok_or_else(wrong)?, part(2).ok_or_else(wrong)?);
        let negative = match sign.cast_unsigned() {
            0x0000 => false,
            0x4000 => true,
            _ => return Err("no number, or one without an end".to_owned()),
        };
        let mut steps: i128 = 0;
        for place in 0..i32::from(count) {
            let at = usize::try_from(place).map_err(|_| wrong())?;
            let digit = i128::from(part(4 + at).ok_or_else(wrong)?);
            // Each stands four places before the next.
            let shift = 4 * (i32::from(weight) - place) + i32::from(of.scale());
            let added = if shift >= 0 {
                let factor = 10_i128.checked_pow(shift.unsigned_abs());
                factor.and_then(|factor| digit.checked_mul(factor))
            } else {
                let below = 10_i128.checked_pow(shift.unsigned_abs());
                match below {
                    Some(below) if digit % below == 0 => Some(digit / below),
                    None if digit == 0 => Some(0),
                    _ => return Err(format!("a number with more digits than a {of} has")),
                }
            };
            steps = added.and_then(|added| steps.checked_add(added)).ok_or_else(wrong)?;
        }
        let steps = if negative { -steps } else { steps };
        if of.holds(steps) { Ok(steps) } else { Err(wrong()) }
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
        Item::Date => both!(Date32Builder::new(), Day, |it: Day| it.0),
        Item::Numeric(of) => {
            let kind = wanted.single();
            let builder = || Decimal128Builder::new().with_data_type(kind.clone());
            if wanted.list {
                let field = Arc::new(Field::new_list_field(kind.clone(), true));
                let mut list = ListBuilder::new(builder()).with_field(field);
                for row in rows {
                    let values: Option<Vec<Option<Numeric<'_>>>> =
                        row.try_get(place).map_err(wrong)?;
                    for value in values.iter().flatten().copied() {
                        let steps = value.map(|value| value.steps(of)).transpose()?;
                        list.values().append_option(steps);
                    }
                    list.append(values.is_some());
                }
                Arc::new(list.finish())
            } else {
                let mut one = builder();
                for row in rows {
                    let value: Option<Numeric<'_>> = row.try_get(place).map_err(wrong)?;
                    one.append_option(value.map(|value| value.steps(of)).transpose()?);
                }
                Arc::new(one.finish())
            }
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
            (Type::DATE, Some(DataType::Date32)),
            (Type::JSONB, None),
            (Type::UUID, None),
        ] {
            assert_eq!(Wanted::new("x", &kind, None).map(|it| it.kind()), taken, "{kind}");
        }
        let numeric = Wanted::new("x", &Type::NUMERIC, Decimal::new(10, 2)).unwrap().kind();
        assert_eq!(numeric, DataType::Decimal128(10, 2));
        let list = Wanted::new("x", &Type::FLOAT4_ARRAY, None).unwrap().kind();
        let inner = Arc::new(Field::new_list_field(DataType::Float32, true));
        assert_eq!(list, DataType::List(inner));
        assert!(Wanted::new("x", &Type::NUMERIC_ARRAY, None).is_none());
    }

    /// As the database writes it: how many digits of ten thousand, where the first stands, the sign,
    /// how many digits are shown behind the point, and the digits.
    #[test]
    fn numbers_are_taken_whole_or_not_at_all() {
        let of = Decimal::new(10, 2).unwrap();
        let read = |parts: &[i32]| {
            let bytes: Vec<u8> = parts
                .iter()
                .flat_map(|part| u16::try_from(*part & 0xffff).unwrap().to_be_bytes())
                .collect();
            Numeric(&bytes).steps(of)
        };
        for (parts, expected) in [
            (&[0, 0, 0, 0][..], Some(0)),
            (&[2, 0, 0, 2, 12, 5000], Some(1250)),
            (&[2, 0, 0x4000, 2, 12, 5000], Some(-1250)),
            (&[1, -1, 0, 2, 100], Some(1)),
            (&[1, 1, 0, 0, 5], Some(5_000_000)),
            (&[3, 1, 0, 2, 9999, 9999, 9900], Some(9_999_999_999)),
            (&[1, -1, 0, 3, 10], None),
            (&[1, 2, 0, 0, 1], None),
            (&[1, 30, 0, 0, 1], None),
            (&[1, -30, 0, 0, 1], None),
            (&[0, 0, 0xc000, 0], None),
            (&[3, 0, 0, 0, 1], None),
        ] {
            assert_eq!(read(parts).ok(), expected, "{parts:?}");
        }
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
