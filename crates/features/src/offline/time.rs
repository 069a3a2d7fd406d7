//! Columns of times, as microseconds.

use std::borrow::Cow;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_schema::{DataType, TimeUnit};
use falaj_base::{Error, Result};

/// What becomes of parts of a microsecond. A moment is cut down and a history up: nothing may come
/// to lie before a moment that did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Down,
    Up,
}

/// The microseconds of a column without gaps. A whole number is taken for microseconds.
pub(super) fn micros<'a>(name: &str, column: &'a dyn Array, cut: Cut) -> Result<Cow<'a, [i64]>> {
    if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
        return Err(Error::invalid(format!("{name}[{row}]"), "null", "a time"));
    }
    let times = match column.data_type() {
        DataType::Int64 => Cow::from(&column.as_primitive::<Int64Type>().values()[..]),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Cow::from(&column.as_primitive::<TimestampMicrosecondType>().values()[..])
        }
        DataType::Timestamp(TimeUnit::Second, _) => {
            scaled(name, column.as_primitive::<TimestampSecondType>().values(), 1_000_000)?
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            scaled(name, column.as_primitive::<TimestampMillisecondType>().values(), 1_000)?
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = column.as_primitive::<TimestampNanosecondType>().values();
            let more = |nanos: &i64| cut == Cut::Up && nanos.rem_euclid(1000) > 0;
            nanos.iter().map(|nanos| nanos.div_euclid(1000) + i64::from(more(nanos))).collect()
        }
        other => return Err(Error::invalid(name, other, "a column of timestamps")),
    };
    Ok(times)
}

fn scaled(name: &str, values: &[i64], by: i64) -> Result<Cow<'static, [i64]>> {
    let scale = |(row, value): (usize, &i64)| {
        let field = || format!("{name}[{row}]");
        let micros = value.checked_mul(by);
        micros.ok_or_else(|| Error::invalid(field(), value, "a time that microseconds can tell"))
    };
    values.iter().enumerate().map(scale).collect()
}
