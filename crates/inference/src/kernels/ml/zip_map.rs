//! `ZipMap` makes a dictionary for each row. Clients of tensors get the matrix it is made from; the
//! keys stand in the model's metadata.

use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::table;

pub(super) fn zip_map(node: &Node<'_>) -> Result<Kernel> {
    let classes = node.ints("classlabels_int64s").len() + node.words("classlabels_strings").len();
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        tensor.expect::<f32>()?;
        let (rows, columns) = table(tensor.shape())?;
        if columns != classes {
            return Err(Error::invalid(
                "shape",
                columns,
                format!("a column for each of {classes}"),
            ));
        }
        Ok(vec![tensor.clone().reshaped(vec![rows, columns])?])
    }))
}
