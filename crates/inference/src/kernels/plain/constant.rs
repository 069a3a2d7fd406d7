//! Values out of nothing.

use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::fitting_bytes;
use crate::tensor::Tensor;

pub(super) fn constant(node: &Node<'_>) -> Result<Kernel> {
    let value = match node.tensor("value")? {
        Some(tensor) => tensor,
        None if node.has("value_float") => Tensor::of([], vec![node.float("value_float", 0.0)])?,
        None if node.has("value_int") => Tensor::of([], vec![node.int("value_int", 0)])?,
        None if node.has("value_string") => Tensor::of([], vec![node.text("value_string", "")])?,
        None if node.has("value_floats") => listed(node.floats("value_floats").to_vec())?,
        None if node.has("value_ints") => listed(node.ints("value_ints").to_vec())?,
        None if node.has("value_strings") => listed(node.texts("value_strings"))?,
        None => return Err(node.unsupported("a constant of another kind")),
    };
    Ok(Box::new(move |_| Ok(vec![value.clone()])))
}

fn listed<T: crate::tensor::Element>(elements: Vec<T>) -> Result<Tensor> {
    Tensor::of([elements.len()], elements)
}

pub(super) fn constant_of_shape(node: &Node<'_>) -> Result<Kernel> {
    let value = match node.tensor("value")? {
        Some(tensor) if tensor.len() == 1 => tensor,
        Some(_) => return Err(node.broken("value of several elements", "one element")),
        None => Tensor::of([1], vec![0.0_f32])?,
    };
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let shape = dimensions(input(inputs, 0)?)?;
        let elements = fitting_bytes(&shape, value.data_type().size(), room)?;
        let data = value.data().pick(std::iter::repeat_n(0, elements));
        Ok(vec![Tensor::new(shape, data)?])
    }))
}

/// A shape that a value holds.
pub(super) fn dimensions(tensor: &Tensor) -> Result<Vec<usize>> {
    let dims = tensor.expect::<i64>()?;
    let shape: Option<Vec<_>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    shape.ok_or_else(|| Error::invalid("shape", format!("{dims:?}"), "no negative dimensions"))
}
