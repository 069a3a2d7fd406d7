//! Softmax. Until version 12 it flattens what lies behind its axis; later it works along the axis.

use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::{around, axis};
use crate::tensor::{Data, Tensor};

pub(super) fn softmax(node: &Node<'_>) -> Result<Kernel> {
    build(node, false)
}

pub(super) fn log_softmax(node: &Node<'_>) -> Result<Kernel> {
    build(node, true)
}

fn build(node: &Node<'_>, logarithm: bool) -> Result<Kernel> {
    let flattens = node.version < 13;
    let along = node.int("axis", if flattens { 1 } else { -1 });
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let place = axis(along, tensor.shape().len())?;
        let (outer, length, inner) = around(tensor.shape(), place);
        let lines = if flattens { (outer, length * inner, 1) } else { (outer, length, inner) };
        let data = match tensor.data() {
            Data::F32(all) => Data::F32(single(all, lines, logarithm)),
            Data::F64(all) => Data::F64(double(all, lines, logarithm)),
            _ => return Err(Error::invalid("datatype", tensor.data_type(), "FP32 or FP64")),
        };
        Ok(vec![Tensor::new(tensor.shape().to_vec(), data)?])
    }))
}

macro_rules! softmax_of {
    ($name:ident, $float:ty) => {
        fn $name(
            all: &[$float],
            (outer, length, inner): (usize, usize, usize),
            logarithm: bool,
        ) -> Vec<$float> {
            let mut result = all.to_vec();
            for block in 0..outer {
                for column in 0..inner {
                    let place = |index: usize| (block * length + index) * inner + column;
                    let most =
                        (0..length).map(|i| all[place(i)]).fold(<$float>::MIN, <$float>::max);
                    let sum: $float = (0..length).map(|i| (all[place(i)] - most).exp()).sum();
                    for index in 0..length {
                        let x = all[place(index)] - most;
                        result[place(index)] = if logarithm { x - sum.ln() } else { x.exp() / sum };
                    }
                }
            }
            result
        }
    };
}

softmax_of!(single, f32);
softmax_of!(double, f64);
