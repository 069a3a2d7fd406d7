//! Products of matrices: shapes, stacks and biases. The loops are in [`super::multiply`].

use falaj_base::{Error, Result};

use super::multiply::Factor;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input, optional};
use crate::kernels::shape::{broadcast, fitting_bytes, places, stretched, strides};
use crate::tensor::{Data, Element, Tensor};

pub(super) fn mat_mul(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let (a, b) = (input(inputs, 0)?, input(inputs, 1)?);
        let product = match (a.data(), b.data()) {
            (Data::F32(x), Data::F32(y)) => product((x, a.shape()), (y, b.shape()), room),
            (Data::F64(x), Data::F64(y)) => product((x, a.shape()), (y, b.shape()), room),
            _ => Err(mismatch(a, b)),
        }?;
        Ok(vec![product])
    }))
}

fn mismatch(one: &Tensor, other: &Tensor) -> Error {
    let types = format!("{} and {}", one.data_type(), other.data_type());
    Error::invalid("datatype", types, "FP32 or FP64, both the same")
}

/// The product of stacks of matrices; a vector counts as a matrix of one row or one column.
fn product<T>(
    (a, left): (&[T], &[usize]),
    (b, right): (&[T], &[usize]),
    room: usize,
) -> Result<Tensor>
where
    T: Element + Factor,
{
    let refused = || {
        let shapes = format!("{left:?} by {right:?}");
        Error::invalid("shape", shapes, "matrices that can be multiplied")
    };
    if left.is_empty() || right.is_empty() {
        return Err(refused());
    }
    let rows_of = if left.len() == 1 { &[1, left[0]][..] } else { left };
    let columns_of = if right.len() == 1 { &[right[0], 1][..] } else { right };
    let (left_stack, &[rows, inner]) = rows_of.split_last_chunk().ok_or_else(refused)?;
    let (right_stack, &[depth, columns]) = columns_of.split_last_chunk().ok_or_else(refused)?;
    if inner != depth {
        return Err(refused());
    }
    let stack = broadcast(left_stack, right_stack)?;
    let mut shape = stack.clone();
    shape.extend([rows, columns]);
    let mut all = vec![T::default(); fitting_bytes(&shape, T::TYPE.size(), room)?];
    let numbers = |own: &[usize]| {
        let matrices: Vec<usize> = (0..own.iter().product()).collect();
        stretched(&matrices, own, &stack).into_owned()
    };
    if rows * columns > 0 {
        let pairs = numbers(left_stack).into_iter().zip(numbers(right_stack));
        for ((one, other), into) in pairs.zip(all.chunks_exact_mut(rows * columns)) {
            let one = &a[one * rows * inner..(one + 1) * rows * inner];
            let other = &b[other * inner * columns..(other + 1) * inner * columns];
            T::multiply(one, other, inner, columns, into);
        }
    }
    // The dimension that made a vector a matrix goes again.
    if right.len() == 1 {
        shape.pop();
    }
    if left.len() == 1 {
        shape.remove(stack.len());
    }
    Tensor::of(shape, all)
}

pub(super) fn gemm(node: &Node<'_>) -> Result<Kernel> {
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    let (turn_a, turn_b) = (node.flag("transA", false), node.flag("transB", false));
    let (room, scales) = (node.room, alpha.to_bits() != 1.0_f32.to_bits());
    Ok(Box::new(move |inputs| {
        let (a, b, c) = (input(inputs, 0)?, input(inputs, 1)?, optional(inputs, 2));
        macro_rules! of {
            ($type:ty, $alpha:expr, $beta:expr) => {{
                let (a, left) = oriented::<$type>(a, turn_a)?;
                let (b, right) = oriented::<$type>(b, turn_b)?;
                let [rows, inner] = left;
                let [depth, columns] = right;
                if inner != depth {
                    let shapes = format!("{left:?} by {right:?}");
                    return Err(Error::invalid("shape", shapes, "matrices that can be multiplied"));
                }
                let shape = vec![rows, columns];
                let mut all =
                    vec![<$type>::default(); fitting_bytes(&shape, size_of::<$type>(), room)?];
                <$type>::multiply(&a, &b, inner, columns, &mut all);
                if scales {
                    for element in &mut all {
                        *element *= $alpha;
                    }
                }
                if let Some(c) = c {
                    if broadcast(c.shape(), &shape)? != shape {
                        let allowed = format!("one that stretches to {shape:?}");
                        return Err(Error::invalid("shape", format!("{:?}", c.shape()), allowed));
                    }
                    let own = c.expect::<$type>()?;
                    let one_line = own.len() == columns && c.shape().last() == Some(&columns);
                    // One line for all rows, as nearly always, need not be stretched.
                    let bias =
                        if one_line { own.into() } else { stretched(own, c.shape(), &shape) };
                    for sums in all.chunks_mut(bias.len().max(1)) {
                        for (sum, &bias) in sums.iter_mut().zip(bias.iter()) {
                            *sum += $beta * bias;
                        }
                    }
                }
                Tensor::of(shape, all)
            }};
        }
        let result = match a.data() {
            Data::F32(_) => of!(f32, alpha, beta),
            Data::F64(_) => of!(f64, f64::from(alpha), f64::from(beta)),
            _ => Err(mismatch(a, b)),
        }?;
        Ok(vec![result])
    }))
}

/// A matrix as rows and columns, turned if asked.
fn oriented<T: Element + Copy>(
    tensor: &Tensor,
    turned: bool,
) -> Result<(std::borrow::Cow<'_, [T]>, [usize; 2])> {
    let &[rows, columns] = tensor.shape() else {
        return Err(Error::invalid("shape", format!("{:?}", tensor.shape()), "two dimensions"));
    };
    let all = tensor.expect::<T>()?;
    if !turned {
        return Ok((all.into(), [rows, columns]));
    }
    let own = strides(tensor.shape());
    let shape = [columns, rows];
    let turned = places(&shape, &[own[1], own[0]]).map(|place| all[place]).collect::<Vec<T>>();
    Ok((turned.into(), shape))
}
