//! Rows that are gone by their values: those that are equal, in some columns, to a row of a list.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use falaj_base::{Error, Result};

use crate::column::Column;

/// A list of rows that are gone.
#[derive(Debug)]
pub(crate) struct Equal {
    /// The columns that are compared.
    pub(crate) columns: Vec<Column>,
    keys: HashSet<Box<[u8]>>,
}

impl Equal {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, keys: HashSet::new() }
    }

    /// Adds rows to the list; tells about how many bytes more it takes. The arrays are those of its
    /// columns.
    pub(crate) fn add(&mut self, arrays: &[ArrayRef], name: &str) -> Result<usize> {
        let rows = arrays.first().map_or(0, Array::len);
        let (mut key, mut taken) = (Vec::new(), 0);
        for row in 0..rows {
            encoded(arrays, row, &mut key, name)?;
            if !self.keys.contains(key.as_slice()) {
                taken += key.len() + 48;
                self.keys.insert(key.as_slice().into());
            }
        }
        Ok(taken)
    }

    /// Marks which rows are in the list.
    pub(crate) fn mark(&self, arrays: &[ArrayRef], kept: &mut [bool], name: &str) -> Result<()> {
        let mut key = Vec::new();
        for (row, kept) in kept.iter_mut().enumerate() {
            if *kept {
                encoded(arrays, row, &mut key, name)?;
                *kept = !self.keys.contains(key.as_slice());
            }
        }
        Ok(())
    }
}

/// The values of a row as bytes that are equal if and only if they are. Null equals null here.
fn encoded(arrays: &[ArrayRef], row: usize, key: &mut Vec<u8>, name: &str) -> Result<()> {
    key.clear();
    for array in arrays {
        if array.is_null(row) {
            key.push(0);
            continue;
        }
        key.push(1);
        macro_rules! plain {
            ($type:ty) => {
                key.extend(array.as_primitive::<$type>().value(row).to_le_bytes())
            };
        }
        macro_rules! float {
            ($type:ty, $number:ty) => {{
                let value = array.as_primitive::<$type>().value(row);
                // All that are no numbers are alike.
                let value = if value.is_nan() { <$number>::NAN } else { value };
                key.extend(value.to_le_bytes());
            }};
        }
        let mut sized = |bytes: &[u8]| {
            key.extend((bytes.len() as u64).to_le_bytes());
            key.extend(bytes);
        };
        match array.data_type() {
            DataType::Boolean => key.push(u8::from(array.as_boolean().value(row))),
            DataType::Int8 => plain!(Int8Type),
            DataType::Int16 => plain!(Int16Type),
            DataType::Int32 => plain!(Int32Type),
            DataType::Int64 => plain!(Int64Type),
            DataType::Date32 => plain!(Date32Type),
            DataType::Decimal128(..) => plain!(Decimal128Type),
            DataType::Timestamp(TimeUnit::Microsecond, _) => plain!(TimestampMicrosecondType),
            DataType::Float32 => float!(Float32Type, f32),
            DataType::Float64 => float!(Float64Type, f64),
            DataType::Utf8 => sized(array.as_string::<i32>().value(row).as_bytes()),
            DataType::Binary => sized(array.as_binary::<i32>().value(row)),
            other => {
                let allowed = "equality deletes by numbers, texts, bytes, booleans, dates or times";
                return Err(Error::invalid(name, other, allowed));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn rows_are_equal_in_all_columns_or_not_at_all() {
        let arrays = |a: Vec<Option<i64>>, b: Vec<Option<&str>>| -> Vec<ArrayRef> {
            vec![Arc::new(Int64Array::from(a)), Arc::new(StringArray::from(b))]
        };
        let mut equal = Equal::new(Vec::new());
        equal.add(&arrays(vec![Some(1), None], vec![Some("ab"), Some("c")]), "x").unwrap();
        let rows = arrays(
            vec![Some(1), Some(1), None, None, Some(1)],
            vec![Some("ab"), Some("a"), Some("c"), None, None],
        );
        let mut kept = vec![true; 5];
        equal.mark(&rows, &mut kept, "x").unwrap();
        assert_eq!(kept, [false, true, false, true, true]);
    }

    #[test]
    fn what_is_no_number_equals_itself() {
        let array: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, 1.0]));
        let mut equal = Equal::new(Vec::new());
        equal.add(&[array.slice(0, 1)], "x").unwrap();
        let mut kept = vec![true; 2];
        equal.mark(&[array], &mut kept, "x").unwrap();
        assert_eq!(kept, [false, true]);
    }
}
