//! The same elements in another arrangement.

use std::collections::BTreeSet;

use falaj_base::{Error, Result};

use super::constant::dimensions;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input, optional};
use crate::kernels::shape::{around, axes, axis, broadcast, fitting_bytes, places, strides};
use crate::tensor::{Data, MAX_RANK, Tensor};

pub(in crate::kernels) fn identity(_: &Node<'_>) -> Result<Kernel> {
    Ok(Box::new(|inputs| Ok(vec![input(inputs, 0)?.clone()])))
}

pub(super) fn shape_of(node: &Node<'_>) -> Result<Kernel> {
    let (start, end) = (node.int("start", 0), node.int("end", i64::MAX));
    Ok(Box::new(move |inputs| {
        let shape = input(inputs, 0)?.shape();
        let rank = shape.len();
        let place = |n: i64| {
            let n = if n < 0 { n.saturating_add_unsigned(rank as u64) } else { n };
            usize::try_from(n).unwrap_or(0).min(rank)
        };
        let (start, end) = (place(start), place(end));
        let dims = shape[start..end.max(start)].iter().map(|&dim| i64::try_from(dim));
        let dims: Vec<i64> = dims.collect::<Result<_, _>>().map_err(Error::internal)?;
        Ok(vec![Tensor::of([dims.len()], dims)?])
    }))
}

/// Zero keeps a dimension, -1 takes what is left.
pub(super) fn reshape(node: &Node<'_>) -> Result<Kernel> {
    let zero_is_zero = node.flag("allowzero", false);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let wanted = input(inputs, 1)?.expect::<i64>()?;
        let refused = || {
            let shapes = format!("{wanted:?} for {:?}", tensor.shape());
            Error::invalid("shape", shapes, "a shape of as many elements")
        };
        let mut shape = Vec::with_capacity(wanted.len().min(MAX_RANK));
        let mut open = None;
        for (place, &dim) in wanted.iter().enumerate() {
            shape.push(match dim {
                0 if !zero_is_zero => *tensor.shape().get(place).ok_or_else(refused)?,
                -1 if open.replace(place).is_none() => 1,
                _ => usize::try_from(dim).map_err(|_| refused())?,
            });
        }
        if let Some(place) = open {
            let rest = shape.iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim));
            let rest = rest.filter(|&rest| rest > 0).ok_or_else(refused)?;
            shape[place] = tensor.len() / rest;
        }
        Ok(vec![tensor.clone().reshaped(shape).map_err(|_| refused())?])
    }))
}

pub(super) fn flatten(node: &Node<'_>) -> Result<Kernel> {
    let cut = node.int("axis", 1);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let rank = tensor.shape().len();
        let cut = if usize::try_from(cut) == Ok(rank) { rank } else { axis(cut, rank)? };
        let (before, behind) = tensor.shape().split_at(cut);
        let shape = vec![before.iter().product(), behind.iter().product()];
        Ok(vec![tensor.clone().reshaped(shape)?])
    }))
}

/// The axes of an operator: until version 12 an attribute, later an input.
fn given_axes(node: &Node<'_>) -> impl Fn(&[Option<&Tensor>]) -> Result<Option<Vec<i64>>> + use<> {
    let fixed = node.has("axes").then(|| node.ints("axes").to_vec());
    move |inputs| match (&fixed, optional(inputs, 1)) {
        (Some(axes), _) => Ok(Some(axes.clone())),
        (None, Some(tensor)) => Ok(Some(tensor.expect::<i64>()?.to_vec())),
        (None, None) => Ok(None),
    }
}

pub(super) fn squeeze(node: &Node<'_>) -> Result<Kernel> {
    let given = given_axes(node);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let shape = tensor.shape();
        let dropped: Vec<usize> = match given(inputs)? {
            Some(given) => axes(&given, shape.len())?,
            None => (0..shape.len()).filter(|&place| shape[place] == 1).collect(),
        };
        if let Some(&wide) = dropped.iter().find(|&&place| shape[place] != 1) {
            return Err(Error::invalid("axes", wide, format!("axes of one element in {shape:?}")));
        }
        let kept = (0..shape.len()).filter(|place| !dropped.contains(place));
        Ok(vec![tensor.clone().reshaped(kept.map(|place| shape[place]).collect())?])
    }))
}

pub(super) fn unsqueeze(node: &Node<'_>) -> Result<Kernel> {
    let given = given_axes(node);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let given = given(inputs)?.unwrap_or_default();
        let rank = tensor.shape().len() + given.len();
        if rank > MAX_RANK {
            return Err(Error::invalid("axes", given.len(), "at most 16 dimensions in all"));
        }
        let added = axes(&given, rank)?;
        if added.len() != given.len() {
            return Err(Error::invalid("axes", format!("{given:?}"), "each axis once"));
        }
        let mut old = tensor.shape().iter().copied();
        let shape =
            (0..rank).map(|place| if added.contains(&place) { 1 } else { old.next().unwrap_or(1) });
        Ok(vec![tensor.clone().reshaped(shape.collect())?])
    }))
}

pub(super) fn transpose(node: &Node<'_>) -> Result<Kernel> {
    let order = node.has("perm").then(|| node.ints("perm").to_vec());
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let rank = tensor.shape().len();
        let order = match &order {
            Some(order) => order.iter().map(|&one| axis(one, rank)).collect::<Result<_>>()?,
            None => (0..rank).rev().collect::<Vec<_>>(),
        };
        if order.len() != rank || order.iter().collect::<BTreeSet<_>>().len() != rank {
            return Err(Error::invalid("perm", format!("{order:?}"), "each axis once"));
        }
        let own = strides(tensor.shape());
        let shape: Vec<_> = order.iter().map(|&place| tensor.shape()[place]).collect();
        let steps: Vec<_> = order.iter().map(|&place| own[place]).collect();
        let data = tensor.data().pick(places(&shape, &steps));
        Ok(vec![Tensor::new(shape, data)?])
    }))
}

pub(super) fn concat(node: &Node<'_>) -> Result<Kernel> {
    let along = node.int("axis", 0);
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let first = input(inputs, 0)?;
        let along = axis(along, first.shape().len())?;
        let mut shape = first.shape().to_vec();
        for place in 1..inputs.len() {
            let part = input(inputs, place)?;
            let alike = part.shape().len() == shape.len()
                && (0..shape.len()).all(|dim| dim == along || part.shape()[dim] == shape[dim]);
            if !alike {
                let allowed = format!("like {:?} but for axis {along}", first.shape());
                return Err(Error::invalid("shape", format!("{:?}", part.shape()), allowed));
            }
            shape[along] += part.shape()[along];
        }
        let kind = first.data_type();
        let elements = fitting_bytes(&shape, kind.size(), room)?;
        let mut data = Data::empty(kind, elements);
        let (outer, ..) = around(&shape, along);
        for block in 0..outer {
            for place in 0..inputs.len() {
                let part = input(inputs, place)?;
                let length = part.len() / outer;
                data.extend(part.data(), block * length..(block + 1) * length)?;
            }
        }
        Ok(vec![Tensor::new(shape, data)?])
    }))
}

pub(super) fn expand(node: &Node<'_>) -> Result<Kernel> {
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let shape = broadcast(tensor.shape(), &dimensions(input(inputs, 1)?)?)?;
        fitting_bytes(&shape, tensor.data_type().size(), room)?;
        let missing = shape.len() - tensor.shape().len();
        let own = strides(tensor.shape());
        let step = |place: usize| match place.checked_sub(missing) {
            Some(place) if tensor.shape()[place] != 1 => own[place],
            _ => 0,
        };
        let steps: Vec<_> = (0..shape.len()).map(step).collect();
        let data = tensor.data().pick(places(&shape, &steps));
        Ok(vec![Tensor::new(shape, data)?])
    }))
}
