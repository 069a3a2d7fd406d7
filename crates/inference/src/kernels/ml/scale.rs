//! Numbers made comparable, and holes filled.

use std::str::FromStr;

use falaj_base::{Error, Result};

use super::singles;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::table;
use crate::tensor::{Data, Tensor};

/// How wide a row is: the second dimension, or the only one.
fn stride(tensor: &Tensor) -> Result<usize> {
    match *tensor.shape() {
        [] => Err(Error::invalid("shape", "[]", "at least one dimension")),
        [only] => Ok(only),
        [_, columns, ..] => Ok(columns),
    }
}

pub(super) fn scaler(node: &Node<'_>) -> Result<Kernel> {
    let (offset, scale) = (node.floats("offset").to_vec(), node.floats("scale").to_vec());
    if scale.is_empty() || scale.len() != offset.len() {
        return Err(node.broken("scale and offset", "lists of one length, not empty"));
    }
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let width = stride(tensor)?;
        if scale.len() != 1 && scale.len() != width {
            let allowed = format!("{} columns", scale.len());
            return Err(Error::invalid("shape", format!("{:?}", tensor.shape()), allowed));
        }
        let columns = offset.iter().zip(&scale).cycle();
        // Doubles are scaled as doubles, and only then rounded.
        #[allow(clippy::cast_possible_truncation, reason = "the output is single")]
        #[allow(clippy::single_match_else, reason = "two kinds of the same thing")]
        let all: Vec<f32> = match tensor.data() {
            Data::F64(all) => {
                let scaled = |(&x, (&from, &by)): (&f64, (&f32, &f32))| {
                    ((x - f64::from(from)) * f64::from(by)) as f32
                };
                all.iter().zip(columns).map(scaled).collect()
            }
            _ => {
                let scaled = |(&x, (&from, &by)): (&f32, (&f32, &f32))| (x - from) * by;
                singles(tensor)?.iter().zip(columns).map(scaled).collect()
            }
        };
        Ok(vec![Tensor::of(tensor.shape(), all)?])
    }))
}

#[derive(Clone, Copy)]
enum Norm {
    Max,
    L1,
    L2,
}

impl FromStr for Norm {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "MAX" => Self::Max,
            "L1" => Self::L1,
            "L2" => Self::L2,
            _ => return Err(()),
        })
    }
}

/// Rows divided by their norm; a row of norm zero stays as it is.
pub(super) fn normalizer(node: &Node<'_>) -> Result<Kernel> {
    let norm: Norm = node.word("norm", "MAX")?;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let (_, columns) = table(tensor.shape())?;
        let mut all = singles(tensor)?.into_owned();
        for row in all.chunks_exact_mut(columns.max(1)) {
            match norm {
                Norm::Max => divide(row, row.iter().copied().fold(f32::MIN, f32::max)),
                Norm::L1 => divide(row, row.iter().map(|x| x.abs()).sum()),
                Norm::L2 => {
                    let sum: f32 = row.iter().map(|&x| x * x).sum();
                    if sum != 0.0 {
                        for x in row {
                            *x = (*x * *x / sum).sqrt().copysign(*x);
                        }
                    }
                }
            }
        }
        Ok(vec![Tensor::of(tensor.shape(), all)?])
    }))
}

fn divide(row: &mut [f32], norm: f32) {
    if norm != 0.0 {
        for x in row {
            *x /= norm;
        }
    }
}

pub(super) fn binarizer(node: &Node<'_>) -> Result<Kernel> {
    let threshold = node.float("threshold", 0.0);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let all = tensor.expect::<f32>()?;
        if all.iter().any(|x| x.is_nan()) {
            return Err(Error::invalid("element", "NaN", "numbers"));
        }
        let above = |&x: &f32| if x > threshold { 1.0 } else { 0.0 };
        Ok(vec![Tensor::of(tensor.shape(), all.iter().map(above).collect::<Vec<f32>>())?])
    }))
}

pub(super) fn imputer(node: &Node<'_>) -> Result<Kernel> {
    let floats = node.floats("imputed_value_floats").to_vec();
    let ints = node.ints("imputed_value_int64s").to_vec();
    if floats.is_empty() == ints.is_empty() {
        return Err(node.broken("imputed values", "floats or integers, not both"));
    }
    let hole = node.float("replaced_value_float", 0.0);
    let whole_hole = node.int("replaced_value_int64", 0);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let width = stride(tensor)?;
        let data = match tensor.data() {
            Data::F32(all) if !floats.is_empty() => {
                #[allow(clippy::float_cmp, reason = "the hole is exactly this value")]
                let is_hole = |x: f32| x == hole || (x.is_nan() && hole.is_nan());
                Data::F32(filled(all, &floats, width, is_hole))
            }
            Data::I64(all) if !ints.is_empty() => {
                Data::I64(filled(all, &ints, width, |x| x == whole_hole))
            }
            _ => {
                let allowed = if ints.is_empty() { "FP32" } else { "INT64" };
                return Err(Error::invalid("datatype", tensor.data_type(), allowed));
            }
        };
        Ok(vec![Tensor::new(tensor.shape().to_vec(), data)?])
    }))
}

/// One filling for each column, or one for all.
fn filled<T: Copy>(all: &[T], fill: &[T], width: usize, is_hole: impl Fn(T) -> bool) -> Vec<T> {
    let column = |place: usize| if fill.len() == width { place % width } else { 0 };
    let fill = |(place, &x): (usize, &T)| if is_hole(x) { fill[column(place)] } else { x };
    all.iter().enumerate().map(fill).collect()
}
