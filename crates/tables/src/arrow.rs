//! Columns to Arrow arrays and back: the only place that knows both.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray, RecordBatch,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType as Arrow, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType};

use crate::column::{Batch, Column, Field, Item, Many};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The values of a list, named as Parquet names them. That they may be missing is what everybody
/// else writes, and what readers want to see before they take a list for a tensor.
fn element(kind: Arrow) -> Arc<ArrowField> {
    Arc::new(ArrowField::new("element", kind, true))
}

pub(crate) fn schema(fields: &[Field]) -> Result<SchemaRef> {
    let fields: Result<Vec<_>> = fields.iter().map(arrow_field).collect();
    Ok(Arc::new(Schema::new(fields?)))
}

fn arrow_field(field: &Field) -> Result<ArrowField> {
    let item = || item_type(field).map(element);
    let kind = match &field.many {
        Many::One => item_type(field)?,
        Many::Varied => Arrow::List(item()?),
        Many::Fixed(shape) => Arrow::FixedSizeList(item()?, width(shape)?),
    };
    let made = ArrowField::new(&field.name, kind, field.optional);
    // Readers that know Arrow's tensors give matrices as matrices; others see a list.
    Ok(match &field.many {
        Many::Fixed(shape) if shape.len() > 1 => made.with_metadata(HashMap::from([
            ("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned()),
            ("ARROW:extension:metadata".to_owned(), format!("{{\"shape\":{shape:?}}}")),
        ])),
        _ => made,
    })
}

fn width(shape: &[usize]) -> Result<i32> {
    let width = falaj_inference::tensor::count(shape)?;
    i32::try_from(width).map_err(|_| Error::invalid("shape", width, "under 2^31 values in a row"))
}

fn item_type(field: &Field) -> Result<Arrow> {
    let other = |what: &str| {
        Err(Error::invalid(format!("column {}", field.name), what, "a type that can be written"))
    };
    Ok(match &field.item {
        Item::Text => Arrow::Utf8,
        Item::Time => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Item::Other(what) => return other(what),
        Item::Element(kind) => match kind {
            DataType::Bool => Arrow::Boolean,
            DataType::U8 => Arrow::UInt8,
            DataType::U16 => Arrow::UInt16,
            DataType::U32 => Arrow::UInt32,
            DataType::U64 => Arrow::UInt64,
            DataType::I8 => Arrow::Int8,
            DataType::I16 => Arrow::Int16,
            DataType::I32 => Arrow::Int32,
            DataType::I64 => Arrow::Int64,
            DataType::F16 => Arrow::Float16,
            DataType::F32 => Arrow::Float32,
            DataType::F64 => Arrow::Float64,
            DataType::Bytes => Arrow::Binary,
            // Parquet has no such type; as single floats nothing is lost.
            DataType::Bf16 => return other("BF16"),
        },
    })
}

pub(crate) fn record_batch(schema: &SchemaRef, batch: Batch) -> Result<RecordBatch> {
    let columns = batch.into_columns().into_iter();
    let arrays: Result<Vec<_>> = columns.map(|(field, column)| array(&field, column)).collect();
    RecordBatch::try_new(schema.clone(), arrays?).map_err(|error| {
        Error::invalid("columns", error, "those that the file was begun with").at("columns")
    })
}

fn array(field: &Field, column: Column) -> Result<ArrayRef> {
    let Column { items, ends, missing } = column;
    let nulls = missing.map(|missing| {
        NullBuffer::from(missing.iter().map(|missing| !missing).collect::<Vec<_>>())
    });
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let too_many = |_| Error::invalid(&field.name, "too many values", "under 2^31 in a batch");
    match (&field.many, ends) {
        (Many::Fixed(shape), _) => {
            let values = values(field, items, None)?;
            let made = FixedSizeListArray::try_new(
                element(values.data_type().clone()),
                width(shape)?,
                values,
                nulls,
            );
            Ok(Arc::new(made.map_err(Error::internal)?))
        }
        (Many::Varied, Some(ends)) => {
            let values = values(field, items, None)?;
            let ends = ends.into_iter().map(i32::try_from);
            let offsets: Result<Vec<_>, _> = std::iter::once(Ok(0)).chain(ends).collect();
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets.map_err(too_many)?));
            let kind = element(values.data_type().clone());
            let made = ListArray::try_new(kind, offsets, values, nulls);
            Ok(Arc::new(made.map_err(Error::internal)?))
        }
        _ => values(field, items, nulls),
    }
}

fn values(field: &Field, items: Data, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    fn plain<T: ArrowPrimitiveType>(all: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(all), nulls))
    }
    let present = |place| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(place));
    Ok(match (&field.item, items) {
        (Item::Time, Data::I64(all)) => {
            let values = ScalarBuffer::from(all);
            let made = PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls);
            Arc::new(made.with_timezone("UTC"))
        }
        (Item::Text, Data::Bytes(all)) => {
            let bytes = all.iter().map(Bytes::len).sum();
            let mut made = StringBuilder::with_capacity(all.len(), bytes);
            for (place, text) in all.iter().enumerate() {
                let text = std::str::from_utf8(text).map_err(|_| {
                    let name = format!("column {}", field.name);
                    Error::invalid(name, format!("row {place}"), "valid UTF-8 in every row")
                })?;
                made.append_option(present(place).then_some(text));
            }
            Arc::new(made.finish())
        }
        (_, Data::Bytes(all)) => {
            let bytes = all.iter().map(Bytes::len).sum();
            let mut made = BinaryBuilder::with_capacity(all.len(), bytes);
            for (place, bytes) in all.iter().enumerate() {
                made.append_option(present(place).then_some(bytes));
            }
            Arc::new(made.finish())
        }
        (_, Data::Bool(all)) => Arc::new(BooleanArray::new(all.into(), nulls)),
        (_, Data::U8(all)) => plain::<UInt8Type>(all, nulls),
        (_, Data::U16(all)) => plain::<UInt16Type>(all, nulls),
        (_, Data::U32(all)) => plain::<UInt32Type>(all, nulls),
        (_, Data::U64(all)) => plain::<UInt64Type>(all, nulls),
        (_, Data::I8(all)) => plain::<Int8Type>(all, nulls),
        (_, Data::I16(all)) => plain::<Int16Type>(all, nulls),
        (_, Data::I32(all)) => plain::<Int32Type>(all, nulls),
        (_, Data::I64(all)) => plain::<Int64Type>(all, nulls),
        (_, Data::F32(all)) => plain::<Float32Type>(all, nulls),
        (_, Data::F64(all)) => plain::<Float64Type>(all, nulls),
        (_, Data::F16(all)) => {
            plain::<Float16Type>(all.into_iter().map(Half::from_bits).collect(), nulls)
        }
        (_, Data::Bf16(_)) => {
            return Err(Error::invalid(&field.name, "BF16", "a type that Parquet has"));
        }
    })
}

/// What a file's column is to us. Lists of lists read as one list, if the inner ones are alike.
pub(crate) fn field(arrow: &ArrowField) -> Field {
    let (mut kind, mut many) = (arrow.data_type(), Many::One);
    while let Arrow::List(inner) | Arrow::LargeList(inner) = kind {
        (kind, many) = (inner.data_type(), Many::Varied);
    }
    let item = match kind {
        Arrow::Utf8 => Item::Text,
        Arrow::Timestamp(..) => Item::Time,
        Arrow::Boolean => Item::Element(DataType::Bool),
        Arrow::UInt8 => Item::Element(DataType::U8),
        Arrow::UInt16 => Item::Element(DataType::U16),
        Arrow::UInt32 => Item::Element(DataType::U32),
        Arrow::UInt64 => Item::Element(DataType::U64),
        Arrow::Int8 => Item::Element(DataType::I8),
        Arrow::Int16 => Item::Element(DataType::I16),
        Arrow::Int32 => Item::Element(DataType::I32),
        Arrow::Int64 => Item::Element(DataType::I64),
        Arrow::Float16 => Item::Element(DataType::F16),
        Arrow::Float32 => Item::Element(DataType::F32),
        Arrow::Float64 => Item::Element(DataType::F64),
        Arrow::Binary => Item::Element(DataType::Bytes),
        other => Item::Other(other.to_string()),
    };
    Field { name: arrow.name().clone(), item, many, optional: arrow.is_nullable() }
}

/// The values of an array that was read as this field.
pub(crate) fn column(field: &Field, array: &dyn Array) -> Result<Column> {
    let missing = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let missing: Option<Vec<bool>> = missing.map(|nulls| nulls.iter().map(|has| !has).collect());
    if field.many == Many::One {
        return Ok(Column { missing, ..Column::of(items(field, array)?) });
    }
    let (ends, inner) = flattened(field, array)?;
    if inner.null_count() > 0 && !floats(inner.data_type()) {
        return Err(refused(field, "lists with holes", "a value in every place of a list"));
    }
    Ok(Column { missing, ..Column::lists(items(field, inner.as_ref())?, ends) })
}

fn floats(kind: &Arrow) -> bool {
    matches!(kind, Arrow::Float16 | Arrow::Float32 | Arrow::Float64)
}

fn refused(field: &Field, value: &str, allowed: &str) -> Error {
    Error::invalid(format!("column {}", field.name), value, allowed)
}

/// Where each row ends and the values of all, lists in lists taken apart.
fn flattened(field: &Field, array: &dyn Array) -> Result<(Vec<usize>, ArrayRef)> {
    let list = array
        .as_list_opt::<i32>()
        .ok_or_else(|| refused(field, &array.data_type().to_string(), "a list"))?;
    let offsets = list.value_offsets();
    let (begin, end) = (offsets[0], offsets[offsets.len() - 1]);
    // A row that is missing may still have values behind it in the file's words; they do not count.
    let hidden = |row: usize| list.is_null(row) && offsets[row] != offsets[row + 1];
    if (0..list.len()).any(hidden) {
        return Err(refused(field, "values in a row that has none", "a well-made list"));
    }
    let start = usize::try_from(begin).map_err(Error::internal)?;
    let length = usize::try_from(end - begin).map_err(Error::internal)?;
    let values = list.values().slice(start, length);
    let mut ends: Vec<usize> = Vec::with_capacity(list.len());
    for end in &offsets[1..] {
        ends.push(usize::try_from(end - begin).map_err(Error::internal)?);
    }
    if !matches!(values.data_type(), Arrow::List(_)) {
        return Ok((ends, values));
    }
    if values.null_count() > 0 {
        return Err(refused(field, "lists with holes", "a value in every place of a list"));
    }
    let (inner_ends, inner) = flattened(field, values.as_ref())?;
    let width = inner_ends.first().copied().unwrap_or(0);
    let even = inner_ends.iter().enumerate().all(|(place, end)| *end == (place + 1) * width);
    if !even {
        return Err(refused(field, "inner lists of different lengths", "inner lists alike"));
    }
    Ok((ends.into_iter().map(|end| end * width).collect(), inner))
}

fn items(field: &Field, array: &dyn Array) -> Result<Data> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    macro_rules! plain {
        ($type:ty, $kind:ident, $hole:expr) => {{
            let values = array.as_primitive::<$type>().values();
            let mut all: Vec<_> = values.to_vec();
            if let Some(nulls) = nulls {
                for place in (0..all.len()).filter(|&place| nulls.is_null(place)) {
                    all[place] = $hole;
                }
            }
            Data::$kind(all)
        }};
    }
    Ok(match array.data_type() {
        Arrow::Boolean => {
            Data::Bool(array.as_boolean().iter().map(Option::unwrap_or_default).collect())
        }
        Arrow::UInt8 => plain!(UInt8Type, U8, 0),
        Arrow::UInt16 => plain!(UInt16Type, U16, 0),
        Arrow::UInt32 => plain!(UInt32Type, U32, 0),
        Arrow::UInt64 => plain!(UInt64Type, U64, 0),
        Arrow::Int8 => plain!(Int8Type, I8, 0),
        Arrow::Int16 => plain!(Int16Type, I16, 0),
        Arrow::Int32 => plain!(Int32Type, I32, 0),
        Arrow::Int64 => plain!(Int64Type, I64, 0),
        Arrow::Float32 => plain!(Float32Type, F32, f32::NAN),
        Arrow::Float64 => plain!(Float64Type, F64, f64::NAN),
        Arrow::Float16 => {
            let values = array.as_primitive::<Float16Type>().iter();
            Data::F16(values.map(|value| value.map_or(0x7e00, Half::to_bits)).collect())
        }
        Arrow::Timestamp(unit, _) => {
            let too_far = || refused(field, "a time beyond 292,000 years", "microseconds");
            let micros: Option<Vec<i64>> = match unit {
                TimeUnit::Second => {
                    times::<TimestampSecondType>(array, |t| t.checked_mul(1_000_000))
                }
                TimeUnit::Millisecond => {
                    times::<TimestampMillisecondType>(array, |t| t.checked_mul(1000))
                }
                TimeUnit::Microsecond => times::<TimestampMicrosecondType>(array, Some),
                TimeUnit::Nanosecond => {
                    times::<TimestampNanosecondType>(array, |t| Some(t.div_euclid(1000)))
                }
            };
            Data::I64(micros.ok_or_else(too_far)?)
        }
        Arrow::Utf8 => {
            let texts = array.as_string::<i32>();
            Data::Bytes(shared(texts.value_data(), texts.value_offsets()))
        }
        Arrow::Binary => {
            let texts = array.as_binary::<i32>();
            Data::Bytes(shared(texts.value_data(), texts.value_offsets()))
        }
        other => return Err(refused(field, &other.to_string(), "a type that can be read")),
    })
}

fn times<T: ArrowPrimitiveType<Native = i64>>(
    array: &dyn Array,
    micros: impl Fn(i64) -> Option<i64>,
) -> Option<Vec<i64>> {
    array.as_primitive::<T>().iter().map(|time| micros(time.unwrap_or(0))).collect()
}

/// Texts that share one copy of their bytes.
fn shared(data: &[u8], offsets: &[i32]) -> Vec<Bytes> {
    let at = |place: usize| usize::try_from(offsets[place]).unwrap_or(0);
    let (start, end) = (at(0), at(offsets.len() - 1));
    let all = Bytes::copy_from_slice(&data[start..end]);
    (1..offsets.len()).map(|place| all.slice(at(place - 1) - start..at(place) - start)).collect()
}
