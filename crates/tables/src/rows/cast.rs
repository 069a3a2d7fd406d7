//! Values as the type that a model takes. What does not fit is refused, by row, and never bent.

use arrow_array::types::{ArrowPrimitiveType, Float16Type};
use falaj_base::{Error, Result};
use falaj_inference::tensor::Element;
use falaj_inference::{Data, DataType};

use crate::column::{Column, Field, Item, Many};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// A column's values as another type. A hole is NaN among floats and refused elsewhere.
pub(super) fn cast(field: &Field, column: &Column, kind: DataType) -> Result<Data> {
    let name = || format!("column {}", field.name);
    let floats = matches!(kind, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64);
    let hole = column.missing.as_ref().and_then(|missing| missing.iter().position(|gone| *gone));
    if let Some(row) = hole.filter(|_| !floats || field.many != Many::One) {
        let allowed = format!("a value in every row, for {kind}");
        return Err(Error::invalid(name(), format!("nothing in row {row} of the batch"), allowed));
    }
    let numbers = !matches!(field.item, Item::Text | Item::Time | Item::Other(_))
        && column.items.data_type() != DataType::Bytes;
    if (kind == DataType::Bytes) == numbers || matches!(field.item, Item::Time | Item::Other(_)) {
        return Err(Error::invalid(name(), described(field, column), format!("what {kind} takes")));
    }
    if column.items.data_type() == kind {
        return Ok(column.items.clone());
    }
    let mut data = match kind {
        DataType::F64 => floats_of(&column.items, |number| number).map(Data::F64),
        #[allow(clippy::cast_possible_truncation, reason = "what single floats are")]
        DataType::F32 => floats_of(&column.items, |number| number as f32).map(Data::F32),
        DataType::F16 => floats_of(&column.items, |n| Half::from_f64(n).to_bits()).map(Data::F16),
        DataType::Bf16 => floats_of(&column.items, to_bf16).map(Data::Bf16),
        DataType::Bool => integers_of(&column.items, |n| match n {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        })
        .map(Data::Bool),
        DataType::U8 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::U8),
        DataType::U16 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::U16),
        DataType::U32 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::U32),
        DataType::U64 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::U64),
        DataType::I8 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::I8),
        DataType::I16 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::I16),
        DataType::I32 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::I32),
        DataType::I64 => integers_of(&column.items, |n| n.try_into().ok()).map(Data::I64),
        DataType::Bytes => Err(0),
    }
    .map_err(|place| {
        let value = format!("a number at place {place} of the batch");
        Error::invalid(name(), value, format!("numbers that {kind} can hold"))
    })?;
    if let Some(missing) = &column.missing {
        for row in (0..missing.len()).filter(|row| missing[*row]) {
            match &mut data {
                Data::F64(all) => all[row] = f64::NAN,
                Data::F32(all) => all[row] = f32::NAN,
                Data::F16(all) => all[row] = 0x7e00,
                Data::Bf16(all) => all[row] = 0x7fc0,
                _ => {}
            }
        }
    }
    Ok(data)
}

fn described(field: &Field, column: &Column) -> String {
    match &field.item {
        Item::Text => "text".to_owned(),
        Item::Time => "times".to_owned(),
        Item::Other(what) => what.clone(),
        Item::Element(_) => column.items.data_type().to_string(),
    }
}

/// Every value as a float; the place of the first that is none.
fn floats_of<T>(data: &Data, make: impl Fn(f64) -> T) -> Result<Vec<T>, usize> {
    #[allow(clippy::cast_precision_loss, reason = "what floats are")]
    let large = |number: i128| number as f64;
    Ok(match data {
        Data::Bool(all) => all.iter().map(|&n| make(f64::from(u8::from(n)))).collect(),
        Data::U8(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::U16(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::U32(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::U64(all) => all.iter().map(|&n| make(large(n.into()))).collect(),
        Data::I8(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::I16(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::I32(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::I64(all) => all.iter().map(|&n| make(large(n.into()))).collect(),
        Data::F16(all) => all.iter().map(|&n| make(Half::from_bits(n).to_f64())).collect(),
        Data::Bf16(all) => all.iter().map(|&n| make(f64::from(from_bf16(n)))).collect(),
        Data::F32(all) => all.iter().map(|&n| make(f64::from(n))).collect(),
        Data::F64(all) => all.iter().map(|&n| make(n)).collect(),
        Data::Bytes(_) => return Err(0),
    })
}

/// Every value as an integer; the place of the first that is none, or does not fit.
fn integers_of<T>(data: &Data, make: impl Fn(i128) -> Option<T>) -> Result<Vec<T>, usize> {
    fn each<N: Copy, T>(
        all: &[N],
        make: impl Fn(i128) -> Option<T>,
        whole: impl Fn(N) -> Option<i128>,
    ) -> Result<Vec<T>, usize> {
        let one = |(place, &number): (usize, &N)| whole(number).and_then(&make).ok_or(place);
        all.iter().enumerate().map(one).collect()
    }
    // 2^64 is the first that no integer type holds; NaN is not below it.
    #[allow(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
    let whole = |number: f64| {
        (number.abs() < 18_446_744_073_709_551_616.0 && number.fract() == 0.0)
            .then_some(number as i128)
    };
    match data {
        Data::Bool(all) => each(all, make, |n| Some(i128::from(n))),
        Data::U8(all) => each(all, make, |n| Some(n.into())),
        Data::U16(all) => each(all, make, |n| Some(n.into())),
        Data::U32(all) => each(all, make, |n| Some(n.into())),
        Data::U64(all) => each(all, make, |n| Some(n.into())),
        Data::I8(all) => each(all, make, |n| Some(n.into())),
        Data::I16(all) => each(all, make, |n| Some(n.into())),
        Data::I32(all) => each(all, make, |n| Some(n.into())),
        Data::I64(all) => each(all, make, |n| Some(n.into())),
        Data::F16(all) => each(all, make, |n| whole(Half::from_bits(n).to_f64())),
        Data::Bf16(all) => each(all, make, |n| whole(f64::from(from_bf16(n)))),
        Data::F32(all) => each(all, make, |n| whole(n.into())),
        Data::F64(all) => each(all, make, whole),
        Data::Bytes(_) => Err(0),
    }
}

pub(super) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest, and of two that are as near the even one.
#[allow(clippy::cast_possible_truncation, reason = "what is cut off was rounded")]
fn to_bf16(number: f64) -> u16 {
    let number = number as f32;
    if number.is_nan() {
        return 0x7fc0;
    }
    let bits = number.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Columns side by side: the first value of each, then the second of each.
pub(super) fn interleaved(columns: &[(&Field, &Column)], kind: DataType) -> Result<Data> {
    fn woven<T: Element>(parts: &[Data]) -> Result<Data> {
        let slices: Option<Vec<&[T]>> = parts.iter().map(T::slice).collect();
        let slices = slices.ok_or_else(|| Error::internal("columns of another type"))?;
        let rows = slices.first().map_or(0, |first| first.len());
        let mut all = Vec::with_capacity(rows * slices.len());
        for row in 0..rows {
            all.extend(slices.iter().map(|slice| slice[row].clone()));
        }
        Ok(T::wrap(all))
    }
    // Half floats have no Rust type: woven as single ones, which hold each of them exactly.
    let half = matches!(kind, DataType::F16 | DataType::Bf16);
    let through = if half { DataType::F32 } else { kind };
    let parts: Result<Vec<_>> =
        columns.iter().map(|(field, column)| cast(field, column, through)).collect();
    let parts = parts?;
    let woven = match through {
        DataType::Bool => woven::<bool>(&parts),
        DataType::U8 => woven::<u8>(&parts),
        DataType::U16 => woven::<u16>(&parts),
        DataType::U32 => woven::<u32>(&parts),
        DataType::U64 => woven::<u64>(&parts),
        DataType::I8 => woven::<i8>(&parts),
        DataType::I16 => woven::<i16>(&parts),
        DataType::I32 => woven::<i32>(&parts),
        DataType::I64 => woven::<i64>(&parts),
        DataType::F64 => woven::<f64>(&parts),
        DataType::Bytes => woven::<bytes::Bytes>(&parts),
        DataType::F32 | DataType::F16 | DataType::Bf16 => woven::<f32>(&parts),
    }?;
    if !half {
        return Ok(woven);
    }
    cast(&Field::one("", Item::Element(DataType::F32)), &Column::of(woven), kind)
}
