//! Our own engine: the operators that tabular models are made of.
//!
//! It needs no library. A model is compiled once into a [`plan`]: nodes in order, values in
//! numbered slots, attributes read into closures. What a closure computes depends on its inputs
//! alone, and each row of a batch is computed as if it were alone, in the same order of additions,
//! so answers do not depend on who shares the batch.
//!
//! Results agree with ONNX Runtime's, peculiarities included; where exactly, the fixtures say.

#![allow(clippy::unnecessary_wraps, reason = "every builder has the same signature")]

mod attributes;
mod ml;
mod plain;
mod plan;
mod shape;
mod turned;

use falaj_base::Result;

use crate::engine::{Engine, Session};
use crate::onnx::{ML, ModelFile, PLAIN};
use crate::tensor::Tensor;
use attributes::Node;

/// What a node does at each run. An input that the model leaves out is none.
type Kernel = Box<dyn Fn(&[Option<&Tensor>]) -> Result<Vec<Tensor>> + Send + Sync>;

/// Reads a node's attributes once and gives what it does.
type Build = fn(&Node<'_>) -> Result<Kernel>;

/// The versions of the operator sets that we read by: from, to.
const PLAIN_VERSIONS: std::ops::RangeInclusive<i64> = 7..=26;
const ML_VERSIONS: std::ops::RangeInclusive<i64> = 1..=5;

/// The engine of our own kernels.
#[derive(Clone, Copy, Debug)]
pub struct Kernels;

impl Engine for Kernels {
    fn name(&self) -> &'static str {
        "kernels"
    }

    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>> {
        Ok(Box::new(plan::Planned::new(model)?))
    }
}

/// What builds an operator, if we have it in the version that the model was written for.
fn find(domain: &str, operator: &str, version: Option<i64>) -> Option<Build> {
    let (table, versions) = match domain {
        PLAIN => (plain::OPERATORS, PLAIN_VERSIONS),
        ML => (ml::OPERATORS, ML_VERSIONS),
        _ => return None,
    };
    version.filter(|version| versions.contains(version))?;
    table.iter().find(|(name, _)| *name == operator).map(|(_, build)| *build)
}

/// Every operator that we have, with its domain: for documentation and for tests.
pub fn operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    let plain = plain::OPERATORS.iter().map(|(name, _)| (PLAIN, *name));
    plain.chain(ml::OPERATORS.iter().map(|(name, _)| (ML, *name)))
}
