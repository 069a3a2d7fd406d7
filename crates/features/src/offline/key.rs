//! Keys: one column or several, compared by what they mean.
//!
//! A whole number is the same in every width; texts and bytes are told apart from numbers. So the
//! keys of two tables meet although one calls them 32 bits wide and the other 64.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, UInt64Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use falaj_base::{Error, Result};

/// The keys of a batch, row by row.
pub(super) enum Keys {
    /// One column of whole numbers.
    Numbers(Numbers),
    /// Anything else, written out; rows with a gap have none.
    Bytes { bytes: Vec<u8>, ends: Vec<Option<(usize, usize)>> },
}

/// Whole numbers, some of which may be missing. Those of a column of 64 bits are its own.
pub(super) struct Numbers {
    pub(super) values: ScalarBuffer<i64>,
    pub(super) nulls: Option<NullBuffer>,
}

impl Numbers {
    fn of<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>) -> Self
    where
        i64: From<T::Native>,
    {
        Self::new(column.values().iter().map(|value| i64::from(*value)).collect(), column)
    }

    /// Those of a column that has such numbers already.
    fn shared<T: ArrowPrimitiveType<Native = i64>>(column: &PrimitiveArray<T>) -> Self {
        Self::new(column.values().clone(), column)
    }

    /// Values, and the gaps of the column that they come from.
    fn new(values: ScalarBuffer<i64>, of: &dyn Array) -> Self {
        Self { values, nulls: of.nulls().filter(|nulls| nulls.null_count() > 0).cloned() }
    }

    pub(super) fn is_missing(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

/// What a part of a key is written as.
enum Part {
    Number(Numbers),
    /// Too large for a signed number: only unsigned keys can be.
    Unsigned(Vec<Option<u64>>),
    Text(ArrayRef),
}

impl Keys {
    pub(super) fn of(columns: &[(&str, ArrayRef)]) -> Result<Self> {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        for (name, column) in columns {
            if column.len() != rows {
                let allowed = format!("{rows} rows, as the other keys");
                return Err(Error::invalid(*name, format!("{} rows", column.len()), allowed));
            }
        }
        let parts = columns
            .iter()
            .map(|(name, column)| Part::of(name, column))
            .collect::<Result<Vec<_>>>()?;
        let parts = match <[Part; 1]>::try_from(parts) {
            Ok([Part::Number(numbers)]) => return Ok(Self::Numbers(numbers)),
            Ok([other]) => vec![other],
            Err(parts) => parts,
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(rows));
        for row in 0..rows {
            let start = bytes.len();
            let whole = parts.iter().all(|part| part.write(row, &mut bytes));
            if !whole {
                bytes.truncate(start);
            }
            ends.push(whole.then_some((start, bytes.len())));
        }
        Ok(Self::Bytes { bytes, ends })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.values.len(),
            Self::Bytes { ends, .. } => ends.len(),
        }
    }
}

impl Part {
    fn of(name: &str, column: &ArrayRef) -> Result<Self> {
        macro_rules! numbers {
            ($type:ty) => {
                Self::Number(Numbers::of(column.as_primitive::<$type>()))
            };
        }
        Ok(match column.data_type() {
            DataType::Int8 => numbers!(Int8Type),
            DataType::Int16 => numbers!(Int16Type),
            DataType::Int32 => numbers!(Int32Type),
            DataType::Int64 => Self::Number(Numbers::shared(column.as_primitive::<Int64Type>())),
            DataType::UInt8 => numbers!(UInt8Type),
            DataType::UInt16 => numbers!(UInt16Type),
            DataType::UInt32 => numbers!(UInt32Type),
            DataType::Date32 => numbers!(Date32Type),
            DataType::Boolean => {
                let column = column.as_boolean();
                let values = column.values().iter().map(i64::from).collect();
                Self::Number(Numbers::new(values, column))
            }
            DataType::Timestamp(..) => {
                let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
                let column = arrow_cast::cast(column, &micros).map_err(Error::internal)?;
                Self::Number(Numbers::shared(column.as_primitive::<TimestampMicrosecondType>()))
            }
            DataType::UInt64 => unsigned(column.as_primitive::<UInt64Type>()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                Self::Text(column.clone())
            }
            other => {
                let allowed = "whole numbers, texts, bytes, times or booleans as keys";
                return Err(Error::invalid(name, other, allowed));
            }
        })
    }

    /// Writes one row behind a mark of its kind and, where lengths differ, its length, so that no
    /// two keys are written alike. Nothing if there is a gap.
    fn write(&self, row: usize, to: &mut Vec<u8>) -> bool {
        match self {
            Self::Number(numbers) if numbers.is_missing(row) => return false,
            Self::Number(numbers) => signed(numbers.values[row], to),
            Self::Unsigned(numbers) => match numbers[row] {
                Some(number) => {
                    if let Ok(number) = i64::try_from(number) {
                        signed(number, to);
                    } else {
                        to.push(2);
                        to.extend_from_slice(&number.to_le_bytes());
                    }
                }
                None => return false,
            },
            Self::Text(column) => {
                if column.is_null(row) {
                    return false;
                }
                let text = match column.data_type() {
                    DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes(),
                    DataType::LargeUtf8 => column.as_string::<i64>().value(row).as_bytes(),
                    DataType::Binary => column.as_binary::<i32>().value(row),
                    _ => column.as_binary::<i64>().value(row),
                };
                to.push(3);
                to.extend_from_slice(&(text.len() as u64).to_le_bytes());
                to.extend_from_slice(text);
            }
        }
        true
    }
}

fn signed(number: i64, to: &mut Vec<u8>) {
    to.push(1);
    to.extend_from_slice(&number.to_le_bytes());
}

/// As signed numbers where all of them fit, which are quicker to find.
fn unsigned(column: &UInt64Array) -> Part {
    if column.iter().flatten().all(|number| i64::try_from(number).is_ok()) {
        // What lies below a gap is nobody's.
        let values = column.values().iter().map(|number| number.cast_signed()).collect();
        return Part::Number(Numbers::new(values, column));
    }
    Part::Unsigned(column.iter().collect())
}
