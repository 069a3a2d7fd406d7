//! Columns of values as expressions compute with them.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array,
    StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow_schema::DataType;
use falaj_base::{Error, Result};

use super::node::{Kind, Literal};
use super::text::{Held, Texts};
use crate::Type;

#[derive(Clone, Debug)]
pub(super) enum Column {
    Bool(BooleanArray),
    Int(Int64Array),
    Float(Float64Array),
    Text(StringArray),
    Bytes(BinaryArray),
    Time(TimestampMicrosecondArray),
    Other(ArrayRef),
    Null(usize),
}

#[cold]
fn unlike() -> Error {
    Error::internal("a column is of another type than its expression")
}

macro_rules! as_kind {
    ($($name:ident $variant:ident $array:ty;)*) => {$(
        pub(super) fn $name(&self) -> Result<&$array> {
            match self {
                Self::$variant(values) => Ok(values),
                _ => Err(unlike()),
            }
        }
    )*};
}

impl Column {
    as_kind! {
        bools Bool BooleanArray;
        ints Int Int64Array;
        floats Float Float64Array;
        texts Text StringArray;
        bytes Bytes BinaryArray;
        times Time TimestampMicrosecondArray;
    }

    /// A column of Arrow, in the widest form of its kind.
    pub(super) fn read(array: &ArrayRef, kind: Type) -> Result<Self> {
        let found = match kind {
            Type::Bool => array.as_boolean_opt().cloned().map(Self::Bool),
            Type::Int32 => array
                .as_primitive_opt::<Int32Type>()
                .map(|narrow| Self::Int(narrow.iter().map(|value| value.map(i64::from)).collect())),
            Type::Int64 => array.as_primitive_opt::<Int64Type>().cloned().map(Self::Int),
            Type::Float32 => array.as_primitive_opt::<Float32Type>().map(|narrow| {
                Self::Float(narrow.iter().map(|value| value.map(f64::from)).collect())
            }),
            Type::Float64 => array.as_primitive_opt::<Float64Type>().cloned().map(Self::Float),
            Type::Text => array.as_string_opt::<i32>().cloned().map(Self::Text),
            Type::Bytes => array.as_binary_opt::<i32>().cloned().map(Self::Bytes),
            Type::Time => {
                array.as_primitive_opt::<TimestampMicrosecondType>().cloned().map(Self::Time)
            }
            Type::Other => Some(Self::Other(array.clone())),
        };
        found.ok_or_else(unlike)
    }

    /// The column as this type; which row cannot be, if one cannot.
    pub(super) fn write(&self, kind: Type) -> Result<ArrayRef, usize> {
        Ok(match (self, kind) {
            (Self::Bool(values), _) => Arc::new(values.clone()),
            (Self::Int(values), Type::Int32) => {
                let narrow = |(row, value): (usize, Option<i64>)| match value.map(i32::try_from) {
                    None => Ok(None),
                    Some(Ok(narrow)) => Ok(Some(narrow)),
                    Some(Err(_)) => Err(row),
                };
                Arc::new(values.iter().enumerate().map(narrow).collect::<Result<Int32Array, _>>()?)
            }
            (Self::Int(values), _) => Arc::new(values.clone()),
            (Self::Float(values), Type::Float32) => {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "a float of four bytes is wanted"
                )]
                let narrow = |value: Option<f64>| value.map(|value| value as f32);
                Arc::new(values.iter().map(narrow).collect::<Float32Array>())
            }
            (Self::Float(values), _) => Arc::new(values.clone()),
            (Self::Text(values), _) => Arc::new(values.clone()),
            (Self::Bytes(values), _) => Arc::new(values.clone()),
            (Self::Time(values), _) => Arc::new(values.clone().with_timezone("UTC")),
            (Self::Other(array), _) => array.clone(),
            (Self::Null(rows), _) => new_null_array(&DataType::Null, *rows),
        })
    }

    pub(super) fn null(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanArray::new_null(rows)),
            Kind::Int => Self::Int(Int64Array::new_null(rows)),
            Kind::Float => Self::Float(Float64Array::new_null(rows)),
            Kind::Text => Self::Text(StringArray::new_null(rows)),
            Kind::Bytes => Self::Bytes(BinaryArray::new_null(rows)),
            Kind::Time => Self::Time(TimestampMicrosecondArray::new_null(rows)),
            Kind::Other | Kind::Null => Self::Null(rows),
        }
    }

    pub(super) fn constant(
        literal: &Literal,
        kind: Kind,
        rows: usize,
        held: &Held,
    ) -> Result<Self> {
        Ok(match literal {
            Literal::Null => Self::null(kind, rows),
            Literal::Bool(value) => Self::Bool(BooleanArray::from(vec![*value; rows])),
            Literal::Int(value) => Self::Int(Int64Array::from_value(*value, rows)),
            Literal::Float(value) => Self::Float(Float64Array::from_value(*value, rows)),
            Literal::Text(value) => {
                held.take(value.len().saturating_mul(rows))?;
                Self::Text(StringArray::from_iter_values((0..rows).map(|_| value)))
            }
            Literal::Time(value) => Self::Time(TimestampMicrosecondArray::from_value(*value, rows)),
        })
    }

    /// What its texts or bytes take, as far as they are its own.
    pub(super) fn text_bytes(&self) -> usize {
        let length = |offsets: &[i32]| match (offsets.first(), offsets.last()) {
            (Some(first), Some(last)) => usize::try_from(last - first).unwrap_or(0),
            _ => 0,
        };
        match self {
            Self::Text(values) => length(values.value_offsets()),
            Self::Bytes(values) => length(values.value_offsets()),
            _ => 0,
        }
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Bool(values) => values.is_null(row),
            Self::Int(values) => values.is_null(row),
            Self::Float(values) => values.is_null(row),
            Self::Text(values) => values.is_null(row),
            Self::Bytes(values) => values.is_null(row),
            Self::Time(values) => values.is_null(row),
            Self::Other(values) => values.is_null(row),
            Self::Null(_) => true,
        }
    }

    /// How two values compare; none if one of them is null.
    pub(super) fn compare(&self, other: &Self, row: usize) -> Result<Option<Ordering>> {
        if self.is_null(row) || other.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.value(row).cmp(&other.value(row)),
            (Self::Int(one), Self::Int(other)) => one.value(row).cmp(&other.value(row)),
            (Self::Float(one), Self::Float(other)) => by_value(one.value(row), other.value(row)),
            (Self::Text(one), Self::Text(other)) => one.value(row).cmp(other.value(row)),
            (Self::Bytes(one), Self::Bytes(other)) => one.value(row).cmp(other.value(row)),
            (Self::Time(one), Self::Time(other)) => one.value(row).cmp(&other.value(row)),
            _ => return Err(unlike()),
        }))
    }

    /// Picks, row by row, the value of one of several columns of a kind; null where none is told.
    pub(super) fn pick(
        from: &[Self],
        kind: Kind,
        which: &[Option<usize>],
        held: &Held,
    ) -> Result<Self> {
        macro_rules! picked {
            ($get:ident) => {{
                let columns = from.iter().map(Self::$get).collect::<Result<Vec<_>>>()?;
                let value = |(row, which): (usize, &Option<usize>)| {
                    which.and_then(|which| {
                        let column = columns[which];
                        (!column.is_null(row)).then(|| column.value(row))
                    })
                };
                which.iter().enumerate().map(value).collect()
            }};
        }
        Ok(match kind {
            Kind::Bool => Self::Bool(picked!(bools)),
            Kind::Int => Self::Int(picked!(ints)),
            Kind::Float => Self::Float(picked!(floats)),
            Kind::Text => {
                let columns = from.iter().map(Self::texts).collect::<Result<Vec<_>>>()?;
                let mut texts = Texts::new(held);
                for (row, which) in which.iter().enumerate() {
                    let found = which.map(|which| columns[which]).filter(|it| !it.is_null(row));
                    texts.push(found.map(|column| column.value(row)))?;
                }
                texts.finish()
            }
            Kind::Bytes => {
                let columns = from.iter().map(Self::bytes).collect::<Result<Vec<_>>>()?;
                let values = which.iter().enumerate().map(|(row, which)| {
                    let found = which.map(|which| columns[which]).filter(|it| !it.is_null(row));
                    found.map(|column| column.value(row))
                });
                super::text::bytes(values, held)?
            }
            Kind::Time => Self::Time(picked!(times)),
            Kind::Null => Self::Null(which.len()),
            Kind::Other => return Err(unlike()),
        })
    }
}

/// The order of floats by value: what is no number is one and the greatest, the zeros are one.
pub(super) fn by_value(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}
