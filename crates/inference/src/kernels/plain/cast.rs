//! From one type to another.

use bytes::Bytes;
use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::tensor::{Data, DataType, Tensor};

pub(super) fn cast(node: &Node<'_>) -> Result<Kernel> {
    let code = node.int("to", 0);
    let to = i32::try_from(code).ok().and_then(DataType::from_onnx);
    let to = to.filter(|to| !matches!(to, DataType::F16 | DataType::Bf16));
    let to = to.ok_or_else(|| node.unsupported(format!("to = {code}")))?;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        Ok(vec![Tensor::new(tensor.shape().to_vec(), convert(tensor, to)?)?])
    }))
}

/// Numbers from numbers, as `as` does it. Where C++ leaves it undefined (a float beyond the range
/// of a whole number), ours is the nearest number.
macro_rules! numbers {
    ($data:expr, $to:expr, [$($kind:ident $type:ty),*], $sources:tt) => {
        match $to {
            $(DataType::$kind => numbers!(@from $data, $kind, $type, $sources),)*
            _ => None,
        }
    };
    (@from $data:expr, $target:ident, $type:ty, [$($kind:ident)*]) => {
        match $data {
            $(Data::$kind(all) => Some(Data::$target(all.iter().map(|&x| x as $type).collect())),)*
            Data::Bool(all) => {
                Some(Data::$target(all.iter().map(|&x| u8::from(x) as $type).collect()))
            }
            _ => None,
        }
    };
}

macro_rules! truths {
    ($data:expr, [$($kind:ident $zero:literal),*]) => {
        match $data {
            $(Data::$kind(all) => Some(all.iter().map(|&x| x != $zero).collect::<Vec<bool>>()),)*
            _ => None,
        }
    };
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    trivial_numeric_casts,
    reason = "this is what the operator is for"
)]
fn convert(tensor: &Tensor, to: DataType) -> Result<Data> {
    let data = tensor.data();
    if data.data_type() == to {
        return Ok(data.clone());
    }
    let converted = match (data, to) {
        (Data::Bytes(texts), _) => return read(texts, to),
        (_, DataType::Bytes) => written(data).map(Data::Bytes),
        (_, DataType::Bool) => truths!(data, [
            F32 0.0, F64 0.0, I64 0, I32 0, I16 0, I8 0, U64 0, U32 0, U16 0, U8 0
        ])
        .map(Data::Bool),
        _ => numbers!(
            data, to,
            [F32 f32, F64 f64, I64 i64, I32 i32, I16 i16, I8 i8, U64 u64, U32 u32, U16 u16, U8 u8],
            [F32 F64 I64 I32 I16 I8 U64 U32 U16 U8]
        ),
    };
    converted
        .ok_or_else(|| Error::invalid("datatype", data.data_type(), format!("no cast to {to}")))
}

/// Numbers as text. Floats of both kinds have the digits that `%.8g` gives them.
fn written(data: &Data) -> Option<Vec<Bytes>> {
    macro_rules! shown {
        ($all:expr) => {
            $all.iter().map(|x| Bytes::from(x.to_string())).collect()
        };
    }
    Some(match data {
        Data::F32(all) => all.iter().map(|&x| Bytes::from(significant(f64::from(x)))).collect(),
        Data::F64(all) => all.iter().map(|&x| Bytes::from(significant(x))).collect(),
        Data::Bool(all) => all.iter().map(|&x| Bytes::from(u8::from(x).to_string())).collect(),
        Data::I64(all) => shown!(all),
        Data::I32(all) => shown!(all),
        Data::I16(all) => shown!(all),
        Data::I8(all) => shown!(all),
        Data::U64(all) => shown!(all),
        Data::U32(all) => shown!(all),
        Data::U16(all) => shown!(all),
        Data::U8(all) => shown!(all),
        _ => return None,
    })
}

/// A float as C's `%.8g` writes it.
fn significant(x: f64) -> String {
    const DIGITS: i32 = 8;
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "INF" } else { "-INF" }.to_owned();
    }
    let precision = usize::try_from(DIGITS - 1).unwrap_or(0);
    let scientific = format!("{x:.precision$e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{x:.decimals$}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

fn read(texts: &[Bytes], to: DataType) -> Result<Data> {
    macro_rules! parsed {
        ($kind:ident) => {
            Data::$kind(texts.iter().map(number).collect::<Result<_>>()?)
        };
    }
    Ok(match to {
        DataType::F32 => parsed!(F32),
        DataType::F64 => parsed!(F64),
        DataType::I64 => parsed!(I64),
        DataType::I32 => parsed!(I32),
        DataType::I16 => parsed!(I16),
        DataType::I8 => parsed!(I8),
        DataType::U64 => parsed!(U64),
        DataType::U32 => parsed!(U32),
        DataType::U16 => parsed!(U16),
        DataType::U8 => parsed!(U8),
        _ => return Err(Error::invalid("datatype", "BYTES", format!("no cast to {to}"))),
    })
}

fn number<T: std::str::FromStr>(text: &Bytes) -> Result<T> {
    let text = String::from_utf8_lossy(text);
    text.trim().parse().map_err(|_| Error::invalid("element", &text, "a number"))
}
