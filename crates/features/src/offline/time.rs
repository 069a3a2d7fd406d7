//! Columns of times, counted in one unit.

use std::borrow::Cow;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_schema::{DataType, TimeUnit};
use falaj_base::{Error, Result};

/// What times are counted in: microseconds, or nanoseconds where moments tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Micros,
    Nanos,
}

impl Unit {
    /// The unit that tells the times of a column exactly.
    pub(super) fn of(column: &dyn Array) -> Self {
        match column.data_type() {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Nanos,
            _ => Self::Micros,
        }
    }

    /// So many microseconds. What lies beyond the years that nanoseconds can tell stays beyond them.
    pub(super) fn micros(self, micros: i64) -> i64 {
        match self {
            Self::Micros => micros,
            Self::Nanos => micros.saturating_mul(1000),
        }
    }
}

/// The times of a column without gaps. A whole number is taken for microseconds. A time that lies
/// between two microseconds is the later of them where those are counted: nothing may come to lie
/// before a moment that did not.
pub(super) fn times<'a>(name: &str, column: &'a dyn Array, unit: Unit) -> Result<Cow<'a, [i64]>> {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(row) = nulls.and_then(|nulls| nulls.iter().position(|there| !there)) {
        return Err(Error::invalid(format!("{name}[{row}]"), "null", "a time"));
    }
    let micros = match column.data_type() {
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
            let nanos = &column.as_primitive::<TimestampNanosecondType>().values()[..];
            return Ok(match unit {
                Unit::Nanos => Cow::from(nanos),
                Unit::Micros => nanos.iter().map(|nanos| up(*nanos)).collect(),
            });
        }
        other => return Err(Error::invalid(name, other, "a column of timestamps")),
    };
    Ok(match unit {
        Unit::Micros => micros,
        Unit::Nanos => micros.iter().map(|micros| unit.micros(*micros)).collect(),
    })
}

/// The first microsecond that is not before so many nanoseconds.
fn up(nanos: i64) -> i64 {
    nanos.div_euclid(1000) + i64::from(nanos.rem_euclid(1000) > 0)
}

fn scaled(name: &str, values: &[i64], by: i64) -> Result<Cow<'static, [i64]>> {
    let scale = |(row, value): (usize, &i64)| {
        let field = || format!("{name}[{row}]");
        let micros = value.checked_mul(by);
        micros.ok_or_else(|| Error::invalid(field(), value, "a time that microseconds can tell"))
    };
    values.iter().enumerate().map(scale).collect()
}
