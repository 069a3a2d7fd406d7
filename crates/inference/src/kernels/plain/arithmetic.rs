//! Two numbers into one, with broadcasting. Whole numbers wrap, as they do in ONNX Runtime.

use falaj_base::{Error, Result};

use super::by_type;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::zipped;
use crate::tensor::{Data, Tensor};

/// The arithmetic that every type of number has.
trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// None where whole numbers have no answer.
    fn over(self, other: Self) -> Option<Self>;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn plus(self, other: Self) -> Self { self + other }
            fn minus(self, other: Self) -> Self { self - other }
            fn times(self, other: Self) -> Self { self * other }
            fn over(self, other: Self) -> Option<Self> { Some(self / other) }
            // A NaN wins, which `min` and `max` of the standard library would drop.
            fn least(self, other: Self) -> Self {
                if self.is_nan() || self < other { self } else { other }
            }
            fn greatest(self, other: Self) -> Self {
                if self.is_nan() || self > other { self } else { other }
            }
        }
    )*};
}
floats!(f32 f64);

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn over(self, other: Self) -> Option<Self> { self.checked_div(other) }
            fn least(self, other: Self) -> Self { self.min(other) }
            fn greatest(self, other: Self) -> Self { self.max(other) }
        }
    )*};
}
whole_numbers!(u8 u32 u64 i8 i32 i64);

/// Two inputs of one type, combined by a function of that type.
macro_rules! combined {
    ($one:expr, $other:expr, $room:expr, [$($kind:ident)*], $combine:expr) => {
        match ($one.data(), $other.data()) {
            $((Data::$kind(a), Data::$kind(b)) => {
                let (shape, all) = zipped((a, $one.shape()), (b, $other.shape()), $room, $combine)?;
                Tensor::new(shape, Data::$kind(all))
            })*
            _ => Err(mismatch($one, $other)),
        }
    };
}

fn mismatch(one: &Tensor, other: &Tensor) -> Error {
    let types = format!("{} and {}", one.data_type(), other.data_type());
    Error::invalid("datatype", types, "numbers of one type")
}

pub(super) fn add(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    pair(move |a, b| combined!(a, b, room, [F32 F64 I64 I32 U64 U32 I8 U8], Number::plus))
}

pub(super) fn sub(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    pair(move |a, b| combined!(a, b, room, [F32 F64 I64 I32 U64 U32 I8 U8], Number::minus))
}

pub(super) fn mul(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    pair(move |a, b| combined!(a, b, room, [F32 F64 I64 I32 U64 U32 I8 U8], Number::times))
}

pub(super) fn div(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    pair(move |a, b| {
        // Looked for first, so that the loop itself has no way out.
        let impossible = by_type!(b, [I64 I32 U64 U32 I8 U8], all => {
            Ok::<bool, Error>(all.contains(&0))
        });
        if impossible.unwrap_or(false) {
            return Err(Error::invalid("divisor", 0, "any other number"));
        }
        combined!(a, b, room, [F32 F64 I64 I32 U64 U32 I8 U8], |x, y| {
            // The one left is the least number over -1, which wraps to itself.
            Number::over(x, y).unwrap_or(x)
        })
    })
}

pub(super) fn pow(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    pair(move |base, exponent| {
        let powers = match exponent.data() {
            Data::F32(all) => all.iter().copied().map(f64::from).collect(),
            Data::F64(all) => all.clone(),
            Data::I32(all) => all.iter().copied().map(f64::from).collect(),
            #[allow(clippy::cast_precision_loss, reason = "exponents are small")]
            Data::I64(all) => all.iter().map(|&n| n as f64).collect(),
            _ => return Err(mismatch(base, exponent)),
        };
        power(base, &Tensor::of(exponent.shape(), powers)?, room)
    })
}

fn power(base: &Tensor, exponent: &Tensor, room: usize) -> Result<Tensor> {
    let exponents = exponent.expect::<f64>()?;
    match base.data() {
        #[allow(clippy::cast_possible_truncation, reason = "floats to the power of floats")]
        Data::F32(all) => {
            let raise = |a: f32, b: f64| a.powf(b as f32);
            let (shape, all) =
                zipped((all, base.shape()), (exponents, exponent.shape()), room, raise)?;
            Tensor::of(shape, all)
        }
        Data::F64(all) => {
            let (shape, all) =
                zipped((all, base.shape()), (exponents, exponent.shape()), room, f64::powf)?;
            Tensor::of(shape, all)
        }
        _ => Err(mismatch(base, exponent)),
    }
}

pub(super) fn min(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    many(move |a, b| combined!(a, b, room, [F32 F64 I64 I32 U64 U32 I8 U8], Number::least))
}

pub(super) fn max(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    many(move |a, b| combined!(a, b, room, [F32 F64 I64 I32 U64 U32 I8 U8], Number::greatest))
}

pub(super) fn sum(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    many(move |a, b| combined!(a, b, room, [F32 F64], Number::plus))
}

pub(super) fn pair(
    combine: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Kernel> {
    Ok(Box::new(move |inputs| Ok(vec![combine(input(inputs, 0)?, input(inputs, 1)?)?])))
}

/// Any number of inputs, combined one after another.
fn many(
    combine: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Kernel> {
    Ok(Box::new(move |inputs| {
        let mut all = input(inputs, 0)?.clone();
        for place in 1..inputs.len() {
            all = combine(&all, input(inputs, place)?)?;
        }
        Ok(vec![all])
    }))
}
