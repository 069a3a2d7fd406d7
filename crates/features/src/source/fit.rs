//! Columns as a view says they are. Only where nothing is lost: a wider number, the same text in
//! another layout, a time in another unit; a whole number in fewer bits if each of them fits.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType as Type, TimeUnit};
use falaj_base::{Error, Result};
use falaj_online::moment::{FIRST_DAY, LAST_DAY};

/// Whether a column of one type can be taken for another.
pub(crate) fn fits(from: &Type, to: &Type) -> bool {
    use Type::{
        Binary, Decimal32, Decimal64, Decimal128, Float16, Float32, Float64, Int8, Int16, Int32,
        Int64, LargeBinary, LargeList, LargeUtf8, List, Timestamp, UInt8, UInt16, UInt32, UInt64,
        Utf8,
    };
    match (from, to) {
        _ if from == to => true,
        (Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64, Int32 | Int64)
        | (Float16 | Float32 | Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, Float64)
        | (Float16 | Int8 | Int16 | UInt8 | UInt16, Float32)
        | (Utf8 | LargeUtf8, Utf8)
        | (Binary | LargeBinary, Binary)
        | (Timestamp(..), Timestamp(..)) => true,
        // As many digits before the point, and behind it, or more.
        (Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s), Decimal128(precision, scale)) => {
            let before = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
            s <= scale && before(*p, *s) <= before(*precision, *scale)
        }
        (List(from) | LargeList(from), List(to)) => fits(from.data_type(), to.data_type()),
        _ => false,
    }
}

/// The column as this type. `field` names it, for the refusal.
pub(crate) fn fit(field: &str, column: &ArrayRef, to: &Type) -> Result<ArrayRef> {
    let column = converted(field, column, to)?;
    check(field, &column)?;
    Ok(column)
}

/// Refuses days and decimals that could not be written and read back: files claim more than they hold to.
fn check(field: &str, column: &ArrayRef) -> Result<()> {
    match column.data_type() {
        Type::Date32 => {
            let days = column.as_primitive::<Date32Type>();
            let fine = FIRST_DAY..=LAST_DAY;
            match days.iter().flatten().find(|day| !fine.contains(day)) {
                None => Ok(()),
                Some(day) => {
                    let day = format!("the day {day} since 1970");
                    Err(Error::invalid(field, day, "days of the years 1 to 9999"))
                }
            }
        }
        Type::Decimal128(precision, _) => {
            let numbers = column.as_primitive::<Decimal128Type>();
            numbers.validate_decimal_precision(*precision).map_err(|_| {
                let allowed = format!("values of the type {}", column.data_type());
                Error::invalid(field, "a decimal of more digits", allowed)
            })
        }
        Type::List(_) => check(field, column.as_list::<i32>().values()),
        _ => Ok(()),
    }
}

fn converted(field: &str, column: &ArrayRef, to: &Type) -> Result<ArrayRef> {
    if column.data_type() == to {
        return Ok(column.clone());
    }
    if !fits(column.data_type(), to) {
        return Err(Error::invalid(field, column.data_type(), to));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    // A time without a zone is taken for UTC, which is to relabel it, not to convert it.
    let naive = matches!((column.data_type(), to), (Type::Timestamp(_, None), Type::Timestamp(..)));
    let wanted = if naive { Type::Timestamp(TimeUnit::Microsecond, None) } else { to.clone() };
    let cast = cast_with_options(column, &wanted, &strict).map_err(|error| {
        let why: String = error.to_string().chars().take(200).collect();
        Error::invalid(field, why, format!("values of the type {to}"))
    })?;
    if !naive {
        return Ok(cast);
    }
    let times = cast.as_primitive::<TimestampMicrosecondType>().clone();
    Ok(Arc::new(times.with_data_type(to.clone())))
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Date32Array, Decimal128Array, Int64Array, TimestampNanosecondArray, UInt64Array,
    };

    use super::*;
    use crate::schema::moment;

    #[test]
    fn nothing_is_lost() {
        for (from, to, fine) in [
            (Type::Int32, Type::Int64, true),
            (Type::Int64, Type::Float64, false),
            (Type::Float64, Type::Float32, false),
            (Type::Utf8, Type::Int64, false),
            (Type::Int64, Type::Utf8, false),
            (Type::Boolean, Type::Int64, false),
            (Type::LargeUtf8, Type::Utf8, true),
            (Type::Int64, moment(), false),
            (Type::Decimal128(5, 2), Type::Decimal128(5, 2), true),
            (Type::Decimal128(5, 2), Type::Decimal128(7, 3), true),
            (Type::Decimal128(5, 2), Type::Decimal128(5, 3), false),
            (Type::Decimal128(5, 2), Type::Decimal128(5, 1), false),
            (Type::Decimal256(40, 2), Type::Decimal128(38, 2), false),
            (Type::Decimal128(5, 2), Type::Float64, false),
            (Type::Float64, Type::Decimal128(38, 10), false),
            (Type::Date32, Type::Date32, true),
            (Type::Date32, moment(), false),
            (moment(), Type::Date32, false),
        ] {
            assert_eq!(fits(&from, &to), fine, "{from} {to}");
        }
        let wide: ArrayRef = Arc::new(Int64Array::from(vec![1, 1 << 40]));
        assert_eq!(fit("x", &wide, &Type::Int32).unwrap_err().field(), Some("x"));
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
        assert!(fit("x", &large, &Type::Int64).is_err());
        let nanos: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_500]));
        assert_eq!(fit("x", &nanos, &moment()).unwrap().data_type(), &moment());
        for (day, fine) in [(FIRST_DAY - 1, false), (FIRST_DAY, true), (LAST_DAY + 1, false)] {
            let days: ArrayRef = Arc::new(Date32Array::from(vec![None, Some(day)]));
            assert_eq!(fit("x", &days, &Type::Date32).is_ok(), fine, "{day}");
        }
        for (steps, fine) in [(99_999, true), (100_000, false), (-100_000, false)] {
            let numbers = Decimal128Array::from(vec![Some(steps), None]);
            let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(5, 2).unwrap());
            assert_eq!(fit("x", &numbers, &Type::Decimal128(5, 2)).is_ok(), fine, "{steps}");
        }
    }
}
