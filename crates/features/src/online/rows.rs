//! Rows as columns of Arrow, as values, and as they are stored.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, ListArray, PrimitiveArray, RecordBatch, TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use falaj_base::{ByteSize, Error, Result, code};
use falaj_online::{Batch, Kind, Packing, Scalar, Stamp, Value};

use super::shape::Shape;
use crate::schema;

/// Packs the rows of a batch that has the columns of [`schema::rows`].
pub(crate) fn pack(shape: &Shape, batch: &RecordBatch, known: i64, log: u64) -> Result<Batch> {
    let mut packed = Batch::new();
    let stamp = |row: usize| Ok((known, log, u32::try_from(row).map_err(Error::internal)?));
    pack_all(shape, batch, stamp, &mut packed)?;
    Ok(packed)
}

/// Packs rows as they were pushed: since when each is known, where in the log it stood, and which
/// row of its push it was. What was taken once is taken again, whatever has been set since.
pub(crate) fn pack_all(
    shape: &Shape,
    batch: &RecordBatch,
    mut stamp: impl FnMut(usize) -> Result<(i64, u64, u32)>,
    packed: &mut Batch,
) -> Result<()> {
    if shape.windows().is_some() {
        // Tiles are added to in the order of the log, by whoever reads it.
        return Ok(());
    }
    let stamps = (0..batch.num_rows()).map(&mut stamp).collect::<Result<Vec<_>>>()?;
    let made = shape.ready.as_ref().map(|ready| ready.run(batch)).transpose()?;
    let columns = Columns::of(shape, made.as_ref().map_or(batch, |made| &made.batch))?;
    for row in 0..columns.events.len() {
        let (known, log, number) = stamps[made.as_ref().map_or(row, |made| made.row(row))];
        let stamp = Stamp { event: columns.events.value(row), known, log, row: number };
        columns.put(row, stamp, packed, |_| Ok(()))?;
    }
    Ok(())
}

/// Which rows of a source are brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    /// Events from here on, and those that became known from here on.
    pub(crate) start: i64,
    /// Events up to here, this one included.
    pub(crate) end: i64,
    /// What is known by now.
    pub(crate) now: i64,
    /// The place of all of them: greater with everything that is brought later.
    pub(crate) log: u64,
    /// The most that the values of one row may take.
    pub(crate) max_row: ByteSize,
}

impl Within {
    fn holds(self, event: i64, known: i64) -> bool {
        event <= self.end && known <= self.now && (event >= self.start || known >= self.start)
    }
}

/// Packs those that are wanted; tells how many. Rows of one source are told apart by their place in
/// it, which begins at `first`, and give way to those that were pushed.
pub(crate) fn pack_some(
    shape: &Shape,
    batch: &RecordBatch,
    known: &TimestampMicrosecondArray,
    within: Within,
    first: u64,
    packed: &mut Batch,
) -> Result<u64> {
    let made = shape.ready.as_ref().map(|ready| ready.run(batch)).transpose()?;
    let columns = Columns::of(shape, made.as_ref().map_or(batch, |made| &made.batch))?;
    let mut count = 0;
    for row in 0..columns.events.len() {
        let own = made.as_ref().map_or(row, |made| made.row(row));
        let (event, known) = (columns.events.value(row), known.value(own));
        if within.holds(event, known) {
            let place = u32::try_from(first + own as u64).unwrap_or(u32::MAX);
            let stamp = Stamp { event, known, log: within.log, row: place };
            columns.put(row, stamp, packed, |size| {
                let most = within.max_row;
                if size as u64 <= most.bytes() {
                    return Ok(());
                }
                let (place, size) = (first + own as u64, ByteSize::from_bytes(size as u64));
                let text = format!(
                    "row {place} of the source takes {size}; allowed: {most} \
                     (`features.online.max_row`)"
                );
                Err(Error::new(&code::TOO_LARGE, text))
            })?;
            count += 1;
        }
    }
    Ok(count)
}

/// The columns of a batch, found.
struct Columns<'a> {
    shape: &'a Shape,
    keys: Vec<Cells<'a>>,
    fields: Vec<Cells<'a>>,
    events: &'a TimestampMicrosecondArray,
}

impl<'a> Columns<'a> {
    fn of(shape: &'a Shape, batch: &'a RecordBatch) -> Result<Self> {
        let column = |name: &str| {
            batch.column_by_name(name).ok_or_else(|| {
                Error::new(&code::INTEGRITY, format!("kept rows lack the column {name}"))
            })
        };
        let events = column(&shape.event_time)?;
        let found = |columns: &[(String, Kind)]| {
            columns
                .iter()
                .map(|(name, kind)| Ok(Cells::of(column(name)?, *kind)))
                .collect::<Result<Vec<_>>>()
        };
        Ok(Self {
            shape,
            keys: found(&shape.keys)?,
            fields: found(&shape.fields)?,
            events: events.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(unlike)?,
        })
    }

    /// Packs a row if its size is found good.
    fn put(
        &self,
        row: usize,
        stamp: Stamp,
        packed: &mut Batch,
        check: impl FnOnce(usize) -> Result<()>,
    ) -> Result<()> {
        packed.put_with(
            |out| {
                if let [cells] = &self.keys[..] {
                    return self.shape.write_key(out, [&cells.value(row)?].into_iter());
                }
                let values = self.keys.iter().map(|cells| cells.value(row));
                self.shape.write_key(out, values.collect::<Result<Vec<_>>>()?.iter())
            },
            |out| {
                let mut packing = self.shape.layout.begin(stamp, out);
                let mut taken = 0;
                for (field, cells) in self.fields.iter().enumerate() {
                    taken += cells.pack(row, field, &mut packing)?;
                }
                check(taken)
            },
        )
    }
}

/// One column. Those of numbers are known as such, so that a row is packed without making values of
/// them.
enum Cells<'a> {
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Other(&'a dyn Array, Kind),
}

impl<'a> Cells<'a> {
    fn of(column: &'a dyn Array, kind: Kind) -> Self {
        let known = match kind {
            Kind::One(Scalar::Int32) => column.as_primitive_opt().map(Self::Int32),
            Kind::One(Scalar::Int64) => column.as_primitive_opt().map(Self::Int64),
            Kind::One(Scalar::Float32) => column.as_primitive_opt().map(Self::Float32),
            Kind::One(Scalar::Float64) => column.as_primitive_opt().map(Self::Float64),
            _ => None,
        };
        known.unwrap_or(Self::Other(column, kind))
    }

    fn value(&self, row: usize) -> Result<Value> {
        fn of<T: ArrowPrimitiveType>(
            cells: &PrimitiveArray<T>,
            row: usize,
            made: impl FnOnce(T::Native) -> Value,
        ) -> Value {
            if cells.is_null(row) { Value::Null } else { made(cells.value(row)) }
        }
        Ok(match self {
            Self::Int32(cells) => of(cells, row, Value::Int32),
            Self::Int64(cells) => of(cells, row, Value::Int64),
            Self::Float32(cells) => of(cells, row, Value::Float32),
            Self::Float64(cells) => of(cells, row, Value::Float64),
            Self::Other(column, kind) => value(*column, row, *kind)?,
        })
    }

    /// Sets a field to the value of a row; tells what that takes, as [`size`] does.
    fn pack(&self, row: usize, field: usize, packing: &mut Packing<'_>) -> Result<usize> {
        match self {
            Self::Int32(cells) if cells.is_valid(row) => {
                packing.fixed(field, cells.value(row).to_le_bytes())?;
            }
            Self::Int64(cells) if cells.is_valid(row) => {
                packing.fixed(field, cells.value(row).to_le_bytes())?;
            }
            Self::Float32(cells) if cells.is_valid(row) => {
                packing.fixed(field, cells.value(row).to_le_bytes())?;
            }
            Self::Float64(cells) if cells.is_valid(row) => {
                packing.fixed(field, cells.value(row).to_le_bytes())?;
            }
            _ => {
                let value = self.value(row)?;
                packing.value(field, &value)?;
                return Ok(size(&value));
            }
        }
        Ok(NUMBER)
    }
}

fn unlike() -> Error {
    Error::new(&code::INTEGRITY, "kept rows have columns of other types than their view")
}

/// What a number takes in a row, about.
const NUMBER: usize = 8;

/// What a value takes in a row, about.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => 4 + text.len(),
        Value::Bytes(bytes) => 4 + bytes.len(),
        Value::List(items) => 4 + items.iter().map(size).sum::<usize>(),
        Value::Decimal(..) => 16,
        _ => NUMBER,
    }
}

/// One value of a column.
pub(crate) fn value(column: &dyn Array, row: usize, kind: Kind) -> Result<Value> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    match kind {
        Kind::One(scalar) => one(column, row, scalar),
        Kind::List(scalar) => {
            let items = column.as_list_opt::<i32>().ok_or_else(unlike)?.value(row);
            let items = (0..items.len()).map(|place| one(&items, place, scalar));
            items.collect::<Result<_>>().map(Value::List)
        }
    }
}

fn one(column: &dyn Array, row: usize, scalar: Scalar) -> Result<Value> {
    fn number<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<T::Native> {
        Some(column.as_primitive_opt::<T>()?.value(row))
    }
    let found = match scalar {
        Scalar::Bool => column.as_boolean_opt().map(|all| Value::Bool(all.value(row))),
        Scalar::Int32 => number::<Int32Type>(column, row).map(Value::Int32),
        Scalar::Int64 => number::<Int64Type>(column, row).map(Value::Int64),
        Scalar::Float32 => number::<Float32Type>(column, row).map(Value::Float32),
        Scalar::Float64 => number::<Float64Type>(column, row).map(Value::Float64),
        Scalar::Timestamp => number::<TimestampMicrosecondType>(column, row).map(Value::Timestamp),
        Scalar::Date => number::<Date32Type>(column, row).map(Value::Date),
        Scalar::Decimal(of) => {
            let alike = *column.data_type() == schema::arrow(Kind::One(scalar));
            let steps = number::<Decimal128Type>(column, row).filter(|_| alike);
            steps.map(|steps| Value::Decimal(steps, of))
        }
        Scalar::String => {
            column.as_string_opt::<i32>().map(|all| Value::String(all.value(row).to_owned()))
        }
        Scalar::Bytes => {
            column.as_binary_opt::<i32>().map(|all| Value::Bytes(all.value(row).to_vec()))
        }
    };
    found.ok_or_else(unlike)
}

/// Values of one kind as a column.
pub(crate) fn column(kind: Kind, values: &[Value]) -> Result<ArrayRef> {
    match kind {
        Kind::One(scalar) => Ok(flat(scalar, values.iter())),
        Kind::List(scalar) => {
            let lists = values.iter().map(|value| match value {
                Value::List(items) => Some(items.as_slice()),
                _ => None,
            });
            let nulls: NullBuffer = lists.clone().map(|list| list.is_some()).collect();
            let sizes = lists.clone().map(|list| list.map_or(0, <[_]>::len));
            let offsets = OffsetBuffer::from_lengths(sizes);
            let items = flat(scalar, lists.flatten().flatten());
            let DataType::List(field) = schema::arrow(kind) else {
                return Err(Error::internal("a list that is none"));
            };
            let field: Arc<Field> = field;
            let list = ListArray::try_new(field, offsets, items, Some(nulls));
            Ok(Arc::new(list.map_err(Error::internal)?))
        }
    }
}

fn flat<'a>(scalar: Scalar, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    macro_rules! built {
        ($builder:expr, $kind:ident, $value:ident => $shown:expr) => {{
            let mut builder = $builder;
            for value in values {
                match value {
                    Value::$kind($value) => builder.append_value($shown),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }};
    }
    match scalar {
        Scalar::Bool => built!(BooleanBuilder::new(), Bool, it => *it),
        Scalar::Int32 => built!(PrimitiveBuilder::<Int32Type>::new(), Int32, it => *it),
        Scalar::Int64 => built!(PrimitiveBuilder::<Int64Type>::new(), Int64, it => *it),
        Scalar::Float32 => built!(PrimitiveBuilder::<Float32Type>::new(), Float32, it => *it),
        Scalar::Float64 => built!(PrimitiveBuilder::<Float64Type>::new(), Float64, it => *it),
        Scalar::String => built!(StringBuilder::new(), String, it => it),
        Scalar::Bytes => built!(BinaryBuilder::new(), Bytes, it => it),
        Scalar::Timestamp => built!(
            PrimitiveBuilder::<TimestampMicrosecondType>::new().with_data_type(schema::moment()),
            Timestamp, it => *it
        ),
        Scalar::Date => built!(PrimitiveBuilder::<Date32Type>::new(), Date, it => *it),
        Scalar::Decimal(_) => {
            let kind = schema::arrow(Kind::One(scalar));
            let mut builder = PrimitiveBuilder::<Decimal128Type>::new().with_data_type(kind);
            for value in values {
                match value {
                    Value::Decimal(steps, _) => builder.append_value(*steps),
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_column() {
        let of = falaj_online::Decimal::new(38, 2).unwrap();
        let text = |text: &str| Value::String(text.to_owned());
        let table = [
            (Kind::One(Scalar::Bool), vec![Value::Bool(true), Value::Null]),
            (Kind::One(Scalar::Int32), vec![Value::Null, Value::Int32(-3)]),
            (Kind::One(Scalar::Int64), vec![Value::Int64(i64::MIN)]),
            (Kind::One(Scalar::Float32), vec![Value::Float32(f32::NAN), Value::Null]),
            (Kind::One(Scalar::Float64), vec![Value::Float64(-0.0)]),
            (Kind::One(Scalar::String), vec![text(""), Value::Null, text("é")]),
            (Kind::One(Scalar::Bytes), vec![Value::Bytes(vec![0, 255]), Value::Null]),
            (Kind::One(Scalar::Timestamp), vec![Value::Timestamp(-1), Value::Null]),
            (
                Kind::List(Scalar::String),
                vec![Value::List(vec![text("a"), text("")]), Value::Null, Value::List(vec![])],
            ),
            (Kind::List(Scalar::Int64), vec![Value::List(vec![Value::Int64(4)])]),
            (Kind::List(Scalar::Timestamp), vec![Value::List(vec![Value::Timestamp(7)])]),
            (Kind::One(Scalar::Date), vec![Value::Date(-1), Value::Null]),
            (Kind::One(Scalar::Decimal(of)), vec![Value::Decimal(-1250, of), Value::Null]),
            (
                Kind::List(Scalar::Decimal(of)),
                vec![Value::List(vec![Value::Decimal(i128::from(i64::MAX), of)]), Value::Null],
            ),
        ];
        for (kind, values) in table {
            let column = column(kind, &values).unwrap();
            assert_eq!(column.data_type(), &schema::arrow(kind));
            let back: Vec<_> =
                (0..values.len()).map(|row| value(&column, row, kind).unwrap()).collect();
            assert_eq!(back, values, "{kind}");
        }
    }
}
