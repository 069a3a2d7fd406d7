//! Products of matrices.
//!
//! Four rows at a time are multiplied in tiles whose sums stay in registers; what rows are left
//! run along the right matrix. Either way an element is summed in the order of the inner dimension,
//! so a row's result is the same to the last bit whatever the batch.

use std::ops::{AddAssign, Mul};

use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input, optional};
use crate::kernels::shape::{broadcast, fitting_bytes, places, stretched, strides};
use crate::tensor::{Data, Element, Tensor};

/// Rows and columns of a tile: eight registers of four singles.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// Fills `into`, which is zero, with `left [n, inner] · right [inner, columns]`.
fn multiply<T: Copy + Default + Mul<Output = T> + AddAssign>(
    left: &[T],
    right: &[T],
    inner: usize,
    columns: usize,
    into: &mut [T],
) {
    if columns == 0 || inner == 0 {
        return;
    }
    let blocks = left.chunks(ROWS * inner).zip(into.chunks_mut(ROWS * columns));
    for (rows, sums) in blocks {
        let tiled = if rows.len() == ROWS * inner { columns / COLUMNS * COLUMNS } else { 0 };
        for first in (0..tiled).step_by(COLUMNS) {
            tile(rows, right, inner, columns, first, sums);
        }
        for (row, sums) in rows.chunks_exact(inner).zip(sums.chunks_exact_mut(columns)) {
            let sums = &mut sums[tiled..];
            for (&factor, line) in row.iter().zip(right.chunks_exact(columns)) {
                for (sum, &element) in sums.iter_mut().zip(&line[tiled..]) {
                    *sum += factor * element;
                }
            }
        }
    }
}

/// One tile of the result.
#[inline]
fn tile<T: Copy + Default + Mul<Output = T> + AddAssign>(
    rows: &[T],
    right: &[T],
    inner: usize,
    columns: usize,
    first: usize,
    into: &mut [T],
) {
    let mut sums = [[T::default(); COLUMNS]; ROWS];
    let lanes: [&[T]; ROWS] = std::array::from_fn(|row| &rows[row * inner..][..inner]);
    for (place, line) in right.chunks_exact(columns).enumerate().take(inner) {
        let Some(line) = line[first..].first_chunk::<COLUMNS>() else { return };
        for (sums, row) in sums.iter_mut().zip(lanes) {
            let factor = row[place];
            for (sum, &element) in sums.iter_mut().zip(line) {
                *sum += factor * element;
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        into[row * columns + first..][..COLUMNS].copy_from_slice(sums);
    }
}

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
    T: Element + Copy + Default + Mul<Output = T> + AddAssign,
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
            multiply(one, other, inner, columns, into);
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
    let room = node.room;
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
                multiply(&a, &b, inner, columns, &mut all);
                for element in &mut all {
                    *element *= $alpha;
                }
                if let Some(c) = c {
                    if broadcast(c.shape(), &shape)? != shape {
                        let allowed = format!("one that stretches to {shape:?}");
                        return Err(Error::invalid("shape", format!("{:?}", c.shape()), allowed));
                    }
                    let bias = stretched(c.expect::<$type>()?, c.shape(), &shape);
                    for (sum, &bias) in all.iter_mut().zip(bias.iter()) {
                        *sum += $beta * bias;
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
