//! Arithmetic on shapes: room, axes, rows and columns, broadcasting.

use std::borrow::Cow;

use falaj_base::{Error, Result, code};

use crate::tensor::{Element, count};

/// How many elements of a type a shape has, refused if they would not fit into `room` bytes.
/// Asked before memory is taken, by every operator whose output can be larger than its inputs.
pub(super) fn fitting<T: Element>(shape: &[usize], room: usize) -> Result<usize> {
    fitting_bytes(shape, T::TYPE.size(), room)
}

pub(super) fn fitting_bytes(shape: &[usize], size: usize, room: usize) -> Result<usize> {
    let elements = count(shape)?;
    if elements.checked_mul(size).is_some_and(|bytes| bytes <= room) {
        return Ok(elements);
    }
    let text = format!("a value of shape {shape:?} is over the limit of {room} bytes");
    Err(Error::new(&code::TOO_LARGE, text))
}

/// An axis counted from the front; a negative one is counted from the back.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let back = axis.checked_add_unsigned(rank as u64).filter(|_| axis < 0);
    usize::try_from(back.unwrap_or(axis)).ok().filter(|&place| place < rank).ok_or_else(|| {
        Error::invalid("axis", axis, format!("-{rank} to {}", rank.saturating_sub(1)))
    })
}

/// Axes counted from the front, sorted, each once.
pub(super) fn axes(given: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut places = given.iter().map(|&one| axis(one, rank)).collect::<Result<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Rows and columns of a table; a single dimension is one row.
pub(super) fn table(shape: &[usize]) -> Result<(usize, usize)> {
    match *shape {
        [columns] => Ok((1, columns)),
        [rows, columns] => Ok((rows, columns)),
        _ => Err(Error::invalid("shape", format!("{shape:?}"), "one or two dimensions")),
    }
}

/// What lies before an axis, along it and behind it.
pub(super) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    let outer = shape[..axis].iter().product();
    let inner = shape[axis + 1..].iter().product();
    (outer, shape[axis], inner)
}

/// How far apart neighbours along each dimension are.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for place in (1..shape.len()).rev() {
        strides[place - 1] = strides[place] * shape[place];
    }
    strides
}

/// The shape that two shapes stretch to.
pub(super) fn broadcast(one: &[usize], other: &[usize]) -> Result<Vec<usize>> {
    let rank = one.len().max(other.len());
    let from_back = |shape: &[usize], back: usize| {
        shape.len().checked_sub(back + 1).map_or(1, |place| shape[place])
    };
    let mut shape = vec![0; rank];
    for back in 0..rank {
        shape[rank - 1 - back] = match (from_back(one, back), from_back(other, back)) {
            (a, b) if a == b => a,
            (1, b) => b,
            (a, 1) => a,
            _ => {
                let shapes = format!("{one:?} with {other:?}");
                return Err(Error::invalid("shape", shapes, "shapes that stretch to each other"));
            }
        };
    }
    Ok(shape)
}

/// The elements stretched from one shape to a larger one.
pub(super) fn stretched<'a, T: Clone>(all: &'a [T], from: &[usize], to: &[usize]) -> Cow<'a, [T]> {
    if from == to {
        return Cow::Borrowed(all);
    }
    let missing = to.len() - from.len();
    let own = strides(from);
    let step = |place: usize| match place.checked_sub(missing) {
        Some(place) if from[place] != 1 => own[place],
        _ => 0,
    };
    let steps: Vec<_> = (0..to.len()).map(step).collect();
    Cow::Owned(places(to, &steps).map(|place| all[place].clone()).collect())
}

/// Walks a shape in order, giving for each element its place under other strides.
pub(super) fn places<'a>(
    shape: &'a [usize],
    steps: &'a [usize],
) -> impl Iterator<Item = usize> + 'a {
    let total: usize = shape.iter().product();
    let mut at = vec![0; shape.len()];
    let mut place = 0;
    (0..total).map(move |_| {
        let here = place;
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            place += steps[axis];
            if at[axis] < shape[axis] {
                break;
            }
            place -= steps[axis] * shape[axis];
            at[axis] = 0;
        }
        here
    })
}

/// Two operands brought to one shape, element by element. `room` bounds the result.
pub(super) fn zipped<A: Copy, B: Copy, O: Element>(
    (one, from): (&[A], &[usize]),
    (other, with): (&[B], &[usize]),
    room: usize,
    combine: impl Fn(A, B) -> O,
) -> Result<(Vec<usize>, Vec<O>)> {
    let shape = broadcast(from, with)?;
    fitting::<O>(&shape, room)?;
    let pairs = |(&a, &b): (&A, &B)| combine(a, b);
    let all = match (one, other) {
        _ if from == with => one.iter().zip(other).map(pairs).collect(),
        (_, [b]) if shape == from => one.iter().map(|&a| combine(a, *b)).collect(),
        ([a], _) if shape == with => other.iter().map(|&b| combine(*a, b)).collect(),
        // A row for every row: biases, scales.
        (_, row) if shape == from && from.ends_with(with) && !row.is_empty() => {
            one.chunks_exact(row.len()).flat_map(|chunk| chunk.iter().zip(row)).map(pairs).collect()
        }
        _ => {
            let one = stretched(one, from, &shape);
            let other = stretched(other, with, &shape);
            one.iter().zip(other.iter()).map(pairs).collect()
        }
    };
    Ok((shape, all))
}
