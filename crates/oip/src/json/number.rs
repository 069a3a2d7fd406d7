//! One element of a tensor, read from JSON and checked against its type.

use bytes::Bytes;
use falaj_inference::Data;

use super::cursor::Cursor;

/// From here on a float may stand for its neighbour: a whole number must then be written as one.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// An element that JSON has a form for.
pub(super) trait FromJson: Sized {
    /// What is allowed, for the refusal.
    const ALLOWED: &str;

    /// Reads it; none if something else is there, and then the cursor may stand anywhere in it.
    fn read(cursor: &mut Cursor<'_>) -> Option<Self>;
}

macro_rules! whole {
    ($($type:ty: $allowed:literal),* $(,)?) => {$(
        impl FromJson for $type {
            const ALLOWED: &str = $allowed;

            fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
                let token = cursor.number()?;
                token.parse().ok().or_else(|| integral(token)?.try_into().ok())
            }
        }
    )*};
}

whole! {
    u8: "a whole number from 0 to 255 (UINT8)",
    u16: "a whole number from 0 to 65535 (UINT16)",
    u32: "a whole number from 0 to 4294967295 (UINT32)",
    u64: "a whole number from 0 to 18446744073709551615 (UINT64)",
    i8: "a whole number from -128 to 127 (INT8)",
    i16: "a whole number from -32768 to 32767 (INT16)",
    i32: "a whole number from -2147483648 to 2147483647 (INT32)",
    i64: "a whole number from -9223372036854775808 to 9223372036854775807 (INT64)",
}

/// `3.0`, `1e3` and `-0` are whole numbers too.
#[cold]
fn integral(token: &str) -> Option<i64> {
    let number: f64 = token.parse().ok()?;
    #[allow(clippy::cast_possible_truncation, reason = "whole and under 2^53")]
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

macro_rules! float {
    ($($type:ident: $allowed:literal),* $(,)?) => {$(
        impl FromJson for $type {
            const ALLOWED: &str = $allowed;

            fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
                if let Some(number) = cursor.decimal() {
                    return Some(number);
                }
                let Some(token) = cursor.number() else {
                    return special(cursor).map(|special| special as $type);
                };
                token.parse().ok().filter(|number: &$type| number.is_finite())
            }
        }
    )*};
}

#[allow(clippy::cast_possible_truncation, reason = "infinities and NaN are so in each width")]
mod floats {
    use super::{Cursor, FromJson, special};

    float! {
        f32: "a number from -3.4028235e38 to 3.4028235e38, NaN, Infinity or -Infinity (FP32)",
        f64: "a number from -1.797e308 to 1.797e308, NaN, Infinity or -Infinity (FP64)",
    }
}

#[cold]
fn special(cursor: &mut Cursor<'_>) -> Option<f64> {
    let words = [
        ("NaN", f64::NAN),
        ("null", f64::NAN),
        ("Infinity", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
    ];
    words.iter().find(|(word, _)| cursor.word(word)).map(|(_, value)| *value)
}

impl FromJson for bool {
    const ALLOWED: &str = "true, false, 1 or 0 (BOOL)";

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        match cursor.peek()? {
            b't' => cursor.word("true").then_some(true),
            b'f' => cursor.word("false").then_some(false),
            _ => match cursor.number()? {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            },
        }
    }
}

/// A string of the body; it shares the body's memory unless something in it is escaped.
pub(super) fn text(cursor: &mut Cursor<'_>, body: &Bytes) -> Option<Bytes> {
    use std::borrow::Cow;
    if cursor.peek()? != b'"' {
        return None;
    }
    let start = cursor.at() + 1;
    match cursor.string("a string").ok()? {
        Cow::Borrowed(text) => Some(body.slice(start..start + text.len())),
        Cow::Owned(text) => Some(Bytes::from(text)),
    }
}

pub(super) const TEXT_ALLOWED: &str = "a string (BYTES)";

/// Appends the element at the cursor, or says what is allowed there.
pub(crate) fn append(
    cursor: &mut Cursor<'_>,
    data: &mut Data,
    body: &Bytes,
) -> Result<(), &'static str> {
    fn one<T: FromJson>(cursor: &mut Cursor<'_>, all: &mut Vec<T>) -> Result<(), &'static str> {
        all.push(T::read(cursor).ok_or(T::ALLOWED)?);
        Ok(())
    }
    match data {
        Data::Bool(all) => one(cursor, all),
        Data::U8(all) => one(cursor, all),
        Data::U16(all) => one(cursor, all),
        Data::U32(all) => one(cursor, all),
        Data::U64(all) => one(cursor, all),
        Data::I8(all) => one(cursor, all),
        Data::I16(all) => one(cursor, all),
        Data::I32(all) => one(cursor, all),
        Data::I64(all) => one(cursor, all),
        Data::F32(all) => one(cursor, all),
        Data::F64(all) => one(cursor, all),
        Data::Bytes(all) => {
            all.push(text(cursor, body).ok_or(TEXT_ALLOWED)?);
            Ok(())
        }
        Data::F16(_) | Data::Bf16(_) => Err("nothing: this type has no form in text"),
    }
}
