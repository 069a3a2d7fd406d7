//! Columns put together and picked out.

use falaj_base::{Error, Result};

use super::singles;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::{fitting, fitting_bytes};
use crate::tensor::Tensor;

/// Inputs side by side, each cut or filled with zeros to the width that the model says.
pub(super) fn feature_vectorizer(node: &Node<'_>) -> Result<Kernel> {
    let widths: Option<Vec<usize>> =
        node.ints("inputdimensions").iter().map(|&width| usize::try_from(width).ok()).collect();
    let widths = widths.ok_or_else(|| node.broken("a negative width", "widths"))?;
    let width = widths.iter().try_fold(0_usize, |sum, &width| sum.checked_add(width));
    let width = width.ok_or_else(|| node.broken("inputdimensions", "widths that add up"))?;
    let room = node.room;
    Ok(Box::new(move |inputs| {
        if inputs.len() != widths.len() {
            return Err(Error::invalid("inputs", inputs.len(), format!("{}", widths.len())));
        }
        let rows_of = |tensor: &Tensor| match *tensor.shape() {
            [] => Err(Error::invalid("shape", "[]", "at least one dimension")),
            [_] => Ok(1),
            [rows, ..] => Ok(rows),
        };
        let rows = rows_of(input(inputs, 0)?)?;
        let mut all = vec![0.0_f32; fitting::<f32>(&[rows, width], room)?];
        let mut start = 0;
        for (place, &wide) in widths.iter().enumerate() {
            let tensor = input(inputs, place)?;
            if rows_of(tensor)? != rows {
                return Err(Error::invalid("rows", rows_of(tensor)?, format!("{rows}")));
            }
            let own = tensor.len().checked_div(rows).unwrap_or(0);
            let taken = own.min(wide);
            let numbers = singles(tensor)?;
            for row in 0..rows {
                let into = row * width + start;
                all[into..into + taken].copy_from_slice(&numbers[row * own..row * own + taken]);
            }
            start += wide;
        }
        Ok(vec![Tensor::of([rows, width], all)?])
    }))
}

/// Columns of the last dimension, by place.
pub(super) fn array_feature_extractor(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let (tensor, wanted) = (input(inputs, 0)?, input(inputs, 1)?.expect::<i64>()?);
        let Some((&columns, outer)) = tensor.shape().split_last() else {
            return Err(Error::invalid("shape", "[]", "at least one dimension"));
        };
        let find = |&column: &i64| {
            let place = usize::try_from(column).ok().filter(|&place| place < columns);
            place.ok_or_else(|| Error::invalid("column", column, format!("0 to {columns}")))
        };
        let wanted = wanted.iter().map(find).collect::<Result<Vec<usize>>>()?;
        if wanted.is_empty() {
            return Err(Error::invalid("columns", "none", "at least one"));
        }
        // A single dimension becomes one row.
        let mut shape = if outer.is_empty() { vec![1] } else { outer.to_vec() };
        let rows: usize = shape.iter().product();
        shape.push(wanted.len());
        fitting_bytes(&shape, tensor.data_type().size(), room)?;
        let places =
            (0..rows).flat_map(|row| wanted.iter().map(move |place| row * columns + place));
        Ok(vec![Tensor::new(shape, tensor.data().pick(places))?])
    }))
}
