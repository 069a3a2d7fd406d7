//! Picking elements: by index, by range, by condition, by size.

use std::cmp::Ordering;

use falaj_base::{Error, Result};

use super::by_type;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input, optional};
use crate::kernels::shape::{around, axis, broadcast, fitting_bytes, stretched};
use crate::tensor::{Data, Tensor};

/// Whole numbers of either width.
fn indices(tensor: &Tensor) -> Result<Vec<i64>> {
    match tensor.data() {
        Data::I64(all) => Ok(all.clone()),
        Data::I32(all) => Ok(all.iter().copied().map(i64::from).collect()),
        _ => Err(Error::invalid("datatype", tensor.data_type(), "INT64 or INT32")),
    }
}

pub(super) fn gather(node: &Node<'_>) -> Result<Kernel> {
    let along = node.int("axis", 0);
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let (tensor, wanted) = (input(inputs, 0)?, input(inputs, 1)?);
        let along = axis(along, tensor.shape().len())?;
        let (outer, length, inner) = around(tensor.shape(), along);
        let picked = indices(wanted)?
            .into_iter()
            .map(|index| axis(index, length))
            .collect::<Result<Vec<_>>>()?;
        let mut shape = tensor.shape()[..along].to_vec();
        shape.extend_from_slice(wanted.shape());
        shape.extend_from_slice(&tensor.shape()[along + 1..]);
        let elements = fitting_bytes(&shape, tensor.data_type().size(), room)?;
        let mut data = Data::empty(tensor.data_type(), elements);
        for block in 0..outer {
            for &index in &picked {
                let start = (block * length + index) * inner;
                data.extend(tensor.data(), start..start + inner)?;
            }
        }
        Ok(vec![Tensor::new(shape, data)?])
    }))
}

/// Until version 9 the ranges are attributes, later they are inputs.
pub(super) fn slice(node: &Node<'_>) -> Result<Kernel> {
    let old = node.version < 10;
    let fixed = ["starts", "ends", "axes"].map(|name| node.ints(name).to_vec());
    let fixed_axes = node.has("axes");
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let (starts, ends, along, steps) = if old {
            let [starts, ends, along] = fixed.clone();
            (starts, ends, fixed_axes.then_some(along), None)
        } else {
            let numbers = |place| optional(inputs, place).map(indices).transpose();
            let (starts, ends) = (indices(input(inputs, 1)?)?, indices(input(inputs, 2)?)?);
            (starts, ends, numbers(3)?, numbers(4)?)
        };
        let count = starts.len();
        let along = match along {
            Some(along) => along,
            None => (0..).take(count).collect(),
        };
        let steps = steps.unwrap_or_else(|| vec![1; count]);
        if [ends.len(), along.len(), steps.len()] != [count; 3] {
            return Err(Error::invalid("starts", count, "as many as ends, axes and steps"));
        }
        let mut result = tensor.clone();
        for place in 0..count {
            result = cut(&result, along[place], starts[place], ends[place], steps[place])?;
        }
        Ok(vec![result])
    }))
}

/// A range along one axis.
fn cut(tensor: &Tensor, along: i64, start: i64, end: i64, step: i64) -> Result<Tensor> {
    let along = axis(along, tensor.shape().len())?;
    let (outer, length, inner) = around(tensor.shape(), along);
    let length = i64::try_from(length).map_err(Error::internal)?;
    let from_front = |n: i64| if n < 0 { n.saturating_add(length) } else { n };
    let (start, end) = match step {
        0 => return Err(Error::invalid("steps", 0, "any other number")),
        1.. => (from_front(start).clamp(0, length), from_front(end).clamp(0, length)),
        _ => (from_front(start).clamp(-1, length - 1), from_front(end).clamp(-1, length - 1)),
    };
    let mut kept = Vec::new();
    let mut at = start;
    while if step > 0 { at < end } else { at > end } {
        kept.push(usize::try_from(at).map_err(Error::internal)?);
        at = at.saturating_add(step);
    }
    let mut shape = tensor.shape().to_vec();
    let old = std::mem::replace(&mut shape[along], kept.len());
    let mut data = Data::empty(tensor.data_type(), outer * kept.len() * inner);
    for block in 0..outer {
        for &index in &kept {
            let first = (block * old + index) * inner;
            data.extend(tensor.data(), first..first + inner)?;
        }
    }
    Tensor::new(shape, data)
}

pub(super) fn where_(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let (condition, yes, no) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
        let shape = broadcast(&broadcast(condition.shape(), yes.shape())?, no.shape())?;
        fitting_bytes(&shape, yes.data_type().size(), room)?;
        let truths = stretched(condition.expect::<bool>()?, condition.shape(), &shape);
        macro_rules! chosen {
            ($($kind:ident)*) => {
                match (yes.data(), no.data()) {
                    $((Data::$kind(a), Data::$kind(b)) => {
                        let a = stretched(a, yes.shape(), &shape);
                        let b = stretched(b, no.shape(), &shape);
                        let pick = |(&truth, (a, b))| if truth { Clone::clone(a) } else { Clone::clone(b) };
                        Data::$kind(truths.iter().zip(a.iter().zip(b.iter())).map(pick).collect())
                    })*
                    _ => {
                        let types = format!("{} and {}", yes.data_type(), no.data_type());
                        return Err(Error::invalid("datatype", types, "two of one type"));
                    }
                }
            };
        }
        let data = chosen!(F32 F64 I64 I32 U8 Bytes Bool);
        Ok(vec![Tensor::new(shape, data)?])
    }))
}

pub(super) fn arg_max(node: &Node<'_>) -> Result<Kernel> {
    arg(node, Ordering::Greater)
}

pub(super) fn arg_min(node: &Node<'_>) -> Result<Kernel> {
    arg(node, Ordering::Less)
}

/// The place of the most extreme element along an axis; of several the first, or the last if asked.
fn arg(node: &Node<'_>, wins: Ordering) -> Result<Kernel> {
    let (along, keep) = (node.int("axis", 0), node.flag("keepdims", true));
    let last = node.flag("select_last_index", false);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let along = axis(along, tensor.shape().len())?;
        let (outer, length, inner) = around(tensor.shape(), along);
        if length == 0 {
            return Err(Error::invalid("shape", format!("{:?}", tensor.shape()), "no empty axis"));
        }
        let mut found = Vec::with_capacity(outer * inner);
        by_type!(tensor, [F32 F64 I64 I32 I8 U8], all => {
            for block in 0..outer {
                for column in 0..inner {
                    let at = |place: usize| all[(block * length + place) * inner + column];
                    let better = |best: usize, place: usize| {
                        let order = at(place).partial_cmp(&at(best));
                        order == Some(wins) || (last && order == Some(Ordering::Equal))
                    };
                    let best = (1..length)
                        .fold(0, |best, place| if better(best, place) { place } else { best });
                    found.push(i64::try_from(best).map_err(Error::internal)?);
                }
            }
            Ok(())
        })?;
        let mut shape = tensor.shape().to_vec();
        if keep {
            shape[along] = 1;
        } else {
            shape.remove(along);
        }
        Ok(vec![Tensor::of(shape, found)?])
    }))
}

/// The k largest or smallest along an axis, in order, with their places. Equal ones come in the
/// order of their places.
pub(super) fn top_k(node: &Node<'_>) -> Result<Kernel> {
    let along = node.int("axis", -1);
    let largest = node.flag("largest", true);
    let fixed = (node.version < 10).then(|| node.int("k", -1));
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let asked = match fixed {
            Some(k) => k,
            None => *indices(input(inputs, 1)?)?
                .first()
                .ok_or_else(|| Error::invalid("k", "nothing", "a number"))?,
        };
        let along = axis(along, tensor.shape().len())?;
        let (outer, length, inner) = around(tensor.shape(), along);
        let k = usize::try_from(asked).ok().filter(|&k| k <= length);
        let k = k.ok_or_else(|| Error::invalid("k", asked, format!("0 to {length}")))?;
        let mut chosen = vec![0; outer * k * inner];
        by_type!(tensor, [F32 F64 I64 I32], all => {
            for block in 0..outer {
                for column in 0..inner {
                    let place = |index: usize| (block * length + index) * inner + column;
                    let mut order: Vec<usize> = (0..length).collect();
                    order.sort_by(|&a, &b| {
                        let rising = all[place(a)].partial_cmp(&all[place(b)]);
                        let rising = rising.unwrap_or(Ordering::Equal);
                        if largest { rising.reverse() } else { rising }
                    });
                    for (rank, &index) in order[..k].iter().enumerate() {
                        chosen[(block * k + rank) * inner + column] = place(index);
                    }
                }
            }
            Ok(())
        })?;
        let mut shape = tensor.shape().to_vec();
        shape[along] = k;
        let values = tensor.data().pick(chosen.iter().copied());
        let places = chosen.iter().map(|&place| i64::try_from(place / inner % length));
        let places: Vec<i64> = places.collect::<Result<_, _>>().map_err(Error::internal)?;
        Ok(vec![Tensor::new(shape.clone(), values)?, Tensor::of(shape, places)?])
    }))
}
