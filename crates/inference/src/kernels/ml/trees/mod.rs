//! Ensembles of trees: random forests, boosted trees.
//!
//! [`draft`] reads the three ways in which ONNX writes them down, [`forest`] lays them out and
//! walks them, [`score`] makes answers of the leaves.

mod draft;
mod forest;
mod score;

use std::sync::OnceLock;

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::singles;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::table;
use crate::tensor::{Data, Tensor};
use draft::Draft;
use forest::{Forest, Leaves};
use score::{Classify, Regress};

/// A forest in the precision of its model, and in double precision once somebody sends doubles.
enum Precision {
    Single(Box<Forest<f32>>, OnceLock<Forest<f64>>),
    Double(Box<Forest<f64>>),
}

impl Precision {
    fn of(node: &Node<'_>, draft: &Draft) -> Result<Self> {
        Ok(if draft.double {
            let forest = Forest::grow(draft)?;
            node.holds(forest.bytes());
            Self::Double(Box::new(forest))
        } else {
            let forest = Forest::grow(draft)?;
            node.holds(forest.bytes());
            Self::Single(Box::new(forest), OnceLock::new())
        })
    }
}

/// Walks the rows of a table through a forest and hands the leaves' sums on, in the precision of
/// the input: doubles are compared as doubles, everything else as singles.
macro_rules! walked {
    ($precision:expr, $tensor:expr, $sums:ident => $body:expr) => {{
        let (rows, columns) = table($tensor.shape())?;
        match ($precision, $tensor.data()) {
            (Precision::Single(forest, wide), Data::F64(all)) => {
                let $sums = wide.get_or_init(|| forest.widened()).walk(all, rows, columns)?;
                $body
            }
            (Precision::Single(forest, _), _) => {
                let $sums = forest.walk(&singles($tensor)?, rows, columns)?;
                $body
            }
            (Precision::Double(forest), Data::F64(all)) => {
                let $sums = forest.walk(all, rows, columns)?;
                $body
            }
            (Precision::Double(_), _) => {
                Err(Error::invalid("datatype", $tensor.data_type(), "FP64, as its trees are"))
            }
        }
    }};
}

pub(in crate::kernels) fn regressor(node: &Node<'_>) -> Result<Kernel> {
    let leaves = Leaves {
        targets: draft::targets(node, node.int("n_targets", 1))?,
        aggregate: node.word("aggregate_function", "SUM")?,
        room: node.room,
    };
    let draft = Draft::listed(node, "target", leaves)?;
    let regress = Regress {
        trees: draft.roots.len(),
        leaves,
        base: draft.base.clone(),
        post: node.word("post_transform", "NONE")?,
    };
    let forest = Precision::of(node, &draft)?;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let scores: Vec<f32> = walked!(&forest, tensor, sums => {
            Ok::<_, Error>(regress.finish(sums))
        })?;
        Ok(vec![Tensor::of([scores.len() / leaves.targets, leaves.targets], scores)?])
    }))
}

/// The operator of version 5, whose output has the type of its input.
pub(in crate::kernels) fn ensemble(node: &Node<'_>) -> Result<Kernel> {
    let leaves = Leaves {
        targets: draft::targets(node, node.int("n_targets", 1))?,
        aggregate: draft::numbered(
            node,
            "aggregate_function",
            1,
            &["AVERAGE", "SUM", "MIN", "MAX"],
        )?,
        room: node.room,
    };
    // The specification has SOFTMAX for 1 and LOGISTIC for 2; ONNX Runtime, by which models are
    // tested before anybody serves them, has it the other way round.
    let posts = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"];
    let draft = Draft::linked(node, leaves)?;
    let regress = Regress {
        trees: draft.roots.len(),
        leaves,
        base: Vec::new(),
        post: draft::numbered(node, "post_transform", 0, &posts)?,
    };
    let forest = Precision::of(node, &draft)?;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let (rows, columns) = table(tensor.shape())?;
        let shape = [rows, leaves.targets];
        let scores = match (&forest, tensor.data()) {
            (Precision::Single(forest, _), Data::F32(all)) => {
                Tensor::of(shape, regress.finish::<f32, f32>(forest.walk(all, rows, columns)?))
            }
            (Precision::Double(forest), Data::F64(all)) => {
                Tensor::of(shape, regress.finish::<f64, f64>(forest.walk(all, rows, columns)?))
            }
            _ => Err(Error::invalid("datatype", tensor.data_type(), "the type of its thresholds")),
        };
        Ok(vec![scores?])
    }))
}

pub(in crate::kernels) fn classifier(node: &Node<'_>) -> Result<Kernel> {
    let ints = node.ints("classlabels_int64s").to_vec();
    let texts = node.texts("classlabels_strings");
    let classes = ints.len().max(texts.len());
    if classes == 0 || (!ints.is_empty() && !texts.is_empty()) {
        return Err(node.broken("labels", "integers or strings, at least one"));
    }
    let leaves = Leaves {
        targets: draft::targets(node, i64::try_from(classes).map_err(Error::internal)?)?,
        aggregate: score::Aggregate::Sum,
        room: node.room,
    };
    let draft = Draft::listed(node, "class", leaves)?;
    let classify = Classify::new(node, &draft, classes, (!ints.is_empty()).then(|| ints.clone()))?;
    let forest = Precision::of(node, &draft)?;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let (labels, scores) =
            walked!(&forest, tensor, sums => Ok::<_, Error>(classify.finish(sums)))?;
        let rows = labels.len();
        let labels = if texts.is_empty() {
            Tensor::of([rows], labels)?
        } else {
            let named = labels.iter().map(|&place| {
                usize::try_from(place).ok().and_then(|place| texts.get(place)).cloned()
            });
            let named: Vec<Bytes> = named.map(Option::unwrap_or_default).collect();
            Tensor::of([rows], named)?
        };
        Ok(vec![labels, Tensor::of([rows, classes], scores)?])
    }))
}

#[cfg(test)]
mod tests;
