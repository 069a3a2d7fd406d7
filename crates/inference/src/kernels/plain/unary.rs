//! One number into one.

use falaj_base::{Error, Result};

use super::by_type;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input, optional};
use crate::tensor::{Data, Element, Tensor};

/// A function that both kinds of floats have.
fn on_floats(
    single: impl Fn(f32) -> f32 + Send + Sync + 'static,
    double: impl Fn(f64) -> f64 + Send + Sync + 'static,
) -> Result<Kernel> {
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let data = match tensor.data() {
            Data::F32(all) => Data::F32(all.iter().map(|&x| single(x)).collect()),
            Data::F64(all) => Data::F64(all.iter().map(|&x| double(x)).collect()),
            _ => return Err(Error::invalid("datatype", tensor.data_type(), "FP32 or FP64")),
        };
        Ok(vec![Tensor::new(tensor.shape().to_vec(), data)?])
    }))
}

macro_rules! floats {
    ($($name:ident: $function:expr;)*) => {$(
        pub(super) fn $name(_: &Node<'_>) -> Result<Kernel> {
            macro_rules! of { ($float:ty) => {{ let f: fn($float) -> $float = $function; f }} }
            on_floats(of!(f32), of!(f64))
        }
    )*};
}

floats! {
    ceil: |x| x.ceil();
    exp: |x| x.exp();
    floor: |x| x.floor();
    log: |x| x.ln();
    reciprocal: |x| 1.0 / x;
    // Of a negative number the exponential would overflow on one side.
    sigmoid: |x| if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { let e = x.exp(); e / (1.0 + e) };
    softplus: |x| if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() };
    sqrt: |x| x.sqrt();
    tanh: |x| x.tanh();
}

macro_rules! numbers {
    ($($name:ident: [$($kind:ident)*] $function:expr;)*) => {$(
        pub(super) fn $name(_: &Node<'_>) -> Result<Kernel> {
            Ok(Box::new(|inputs| {
                let tensor = input(inputs, 0)?;
                let data = match tensor.data() {
                    $(Data::$kind(all) => Data::$kind(all.iter().map($function).collect()),)*
                    _ => {
                        let allowed = stringify!($($kind),*);
                        return Err(Error::invalid("datatype", tensor.data_type(), allowed));
                    }
                };
                Ok(vec![Tensor::new(tensor.shape().to_vec(), data)?])
            }))
        }
    )*};
}

numbers! {
    relu: [F32 F64 I32 I8] |&x| if x < Default::default() { Default::default() } else { x };
}

/// Numbers with a sign.
trait Signed: Copy {
    fn absolute(self) -> Self;
    fn negated(self) -> Self;
    fn sign(self) -> Self;
}

macro_rules! signed {
    ($([$($type:ty)*] $abs:ident $neg:expr, $sign:expr;)*) => {$($(
        impl Signed for $type {
            fn absolute(self) -> Self { self.$abs() }
            fn negated(self) -> Self { let f: fn($type) -> $type = $neg; f(self) }
            fn sign(self) -> Self { let f: fn($type) -> $type = $sign; f(self) }
        }
    )*)*};
}

signed! {
    [f32 f64] abs |x| -x, |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 };
    [i8 i16 i32 i64] wrapping_abs |x| x.wrapping_neg(), |x| x.signum();
}

numbers! {
    abs: [F32 F64 I64 I32 I16 I8] |&x| Signed::absolute(x);
    neg: [F32 F64 I64 I32 I16 I8] |&x| Signed::negated(x);
    sign: [F32 F64 I64 I32 I16 I8] |&x| Signed::sign(x);
}

pub(super) fn is_nan(_: &Node<'_>) -> Result<Kernel> {
    Ok(Box::new(|inputs| {
        let tensor = input(inputs, 0)?;
        let all: Vec<bool> =
            by_type!(tensor, [F32 F64], all => Ok(all.iter().map(|x| x.is_nan()).collect()))?;
        Ok(vec![Tensor::of(tensor.shape(), all)?])
    }))
}

pub(super) fn leaky_relu(node: &Node<'_>) -> Result<Kernel> {
    let alpha = node.float("alpha", 0.01);
    let single = move |x| if x < 0.0 { alpha * x } else { x };
    let alpha = f64::from(alpha);
    on_floats(single, move |x| if x < 0.0 { alpha * x } else { x })
}

pub(super) fn elu(node: &Node<'_>) -> Result<Kernel> {
    let alpha = node.float("alpha", 1.0);
    let single = move |x: f32| if x < 0.0 { alpha * x.exp_m1() } else { x };
    let alpha = f64::from(alpha);
    on_floats(single, move |x: f64| if x < 0.0 { alpha * x.exp_m1() } else { x })
}

/// Until version 11 the bounds are attributes, later they are inputs.
pub(super) fn clip(node: &Node<'_>) -> Result<Kernel> {
    if node.version < 11 {
        let (low, high) = (node.float("min", f32::MIN), node.float("max", f32::MAX));
        return Ok(Box::new(move |inputs| {
            let tensor = input(inputs, 0)?;
            let all = tensor.expect::<f32>()?.iter();
            let all = all.map(|&x| bounded(x, Some(low), Some(high))).collect::<Vec<f32>>();
            Ok(vec![Tensor::of(tensor.shape(), all)?])
        }));
    }
    Ok(Box::new(|inputs| {
        let tensor = input(inputs, 0)?;
        let (low, high) = (optional(inputs, 1), optional(inputs, 2));
        let clipped = by_type!(tensor, [F32 F64 I64 I32 U64 U32 I8 U8], all => {
            let (low, high) = (bound(low)?, bound(high)?);
            Tensor::of(tensor.shape(), all.iter().map(|&x| bounded(x, low, high)).collect())
        })?;
        Ok(vec![clipped])
    }))
}

fn bound<T: Element + Copy>(bound: Option<&Tensor>) -> Result<Option<T>> {
    match bound.map(Tensor::expect::<T>).transpose()? {
        None => Ok(None),
        Some([bound]) => Ok(Some(*bound)),
        Some(_) => Err(Error::invalid("bound", "several numbers", "one number")),
    }
}

/// The upper bound wins where the two contradict each other; a NaN stays one.
fn bounded<T: PartialOrd>(x: T, low: Option<T>, high: Option<T>) -> T {
    let x = match low {
        Some(low) if x < low => low,
        _ => x,
    };
    match high {
        Some(high) if x > high => high,
        _ => x,
    }
}
