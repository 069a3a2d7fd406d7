//! Single values, as they are aggregated.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};

use super::bytes::{Reader, put_bytes, put_signed};
use crate::{Type, hash};

/// A value that is there.
#[derive(Clone, Debug)]
pub enum Item {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Time(i64),
}

impl Item {
    fn mark(&self) -> u8 {
        match self {
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Float(_) => 3,
            Self::Text(_) => 4,
            Self::Bytes(_) => 5,
            Self::Time(_) => 6,
        }
    }

    pub(super) fn hash(&self) -> u64 {
        match self {
            Self::Bool(value) => hash::of_int((*value).into()),
            Self::Int(value) | Self::Time(value) => hash::of_int(*value),
            Self::Float(value) => hash::of_float(*value),
            Self::Text(value) => hash::of(value.as_bytes()),
            Self::Bytes(value) => hash::of(value),
        }
    }

    /// A number as a float, if it is one.
    #[allow(clippy::cast_precision_loss, reason = "the nearest float is wanted")]
    pub(super) fn float(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// How many bytes it takes beside its own size.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Text(value) => value.len(),
            Self::Bytes(value) => value.len(),
            _ => 0,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.mark());
        match self {
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Int(value) | Self::Time(value) => put_signed(out, (*value).into()),
            Self::Float(value) => {
                out.extend_from_slice(&hash::canonical(*value).to_bits().to_le_bytes());
            }
            Self::Text(value) => put_bytes(out, value.as_bytes()),
            Self::Bytes(value) => put_bytes(out, value),
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.byte()? {
            1 => Self::Bool(from.byte()? != 0),
            2 => Self::Int(from.signed()?.try_into().ok()?),
            3 => Self::Float(f64::from_bits(u64::from_le_bytes(from.array()?))),
            4 => Self::Text(std::str::from_utf8(from.bytes()?).ok()?.into()),
            5 => Self::Bytes(from.bytes()?.into()),
            6 => Self::Time(from.signed()?.try_into().ok()?),
            _ => return None,
        })
    }
}

/// By value; the zeros are one, and what is no number is the greatest.
impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Int(one), Self::Int(other)) | (Self::Time(one), Self::Time(other)) => {
                one.cmp(other)
            }
            (Self::Float(one), Self::Float(other)) => {
                hash::canonical(*one).total_cmp(&hash::canonical(*other))
            }
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Bytes(one), Self::Bytes(other)) => one.cmp(other),
            (one, other) => one.mark().cmp(&other.mark()),
        }
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Item {}

/// A column whose values are handed over one by one.
#[derive(Debug)]
pub struct Items {
    array: ArrayRef,
    kind: Type,
}

impl Items {
    pub fn new(array: ArrayRef, kind: Type) -> Result<Self> {
        let fits = match kind {
            Type::Bool => array.as_boolean_opt().is_some(),
            Type::Int32 => array.as_primitive_opt::<Int32Type>().is_some(),
            Type::Int64 => array.as_primitive_opt::<Int64Type>().is_some(),
            Type::Float32 => array.as_primitive_opt::<Float32Type>().is_some(),
            Type::Float64 => array.as_primitive_opt::<Float64Type>().is_some(),
            Type::Text => array.as_string_opt::<i32>().is_some(),
            Type::Bytes => array.as_binary_opt::<i32>().is_some(),
            Type::Time => array.as_primitive_opt::<TimestampMicrosecondType>().is_some(),
            Type::Other => false,
        };
        if fits { Ok(Self { array, kind }) } else { Err(Error::internal("not of its type")) }
    }

    /// The value of a row; none if it is null.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<Item> {
        let array = &self.array;
        if array.is_null(row) {
            return None;
        }
        Some(match self.kind {
            Type::Bool => Item::Bool(array.as_boolean().value(row)),
            Type::Int32 => Item::Int(array.as_primitive::<Int32Type>().value(row).into()),
            Type::Int64 => Item::Int(array.as_primitive::<Int64Type>().value(row)),
            Type::Float32 => Item::Float(array.as_primitive::<Float32Type>().value(row).into()),
            Type::Float64 => Item::Float(array.as_primitive::<Float64Type>().value(row)),
            Type::Text => Item::Text(array.as_string::<i32>().value(row).into()),
            Type::Bytes => Item::Bytes(array.as_binary::<i32>().value(row).into()),
            Type::Time => Item::Time(array.as_primitive::<TimestampMicrosecondType>().value(row)),
            Type::Other => return None,
        })
    }
}
