//! Reading ONNX models that strangers wrote.
//!
//! What must hold of a [`ModelFile`]: it is within the [`Limits`]; every tensor it carries is in
//! the file and as large as it says; it names the operator sets it uses; every value has one
//! producer, and no value depends on itself; its inputs and outputs are tensors with known types.
//! Reading takes time and memory in proportion to the file.
//!
//! Not here: whether the operators exist or fit together. That is for the engine that loads it.

mod constant;
mod external;
mod graph;
mod limits;
mod metadata;
pub mod proto;

use std::collections::HashMap;

use bytes::Bytes;
use falaj_base::{Error, Result, code};
use prost::Message;

pub(crate) use constant::{read as read_tensor, unshared};
pub use external::{Files, external_files, gather};
pub use limits::Limits;
pub(crate) use metadata::is_zip_map;
pub use metadata::{Labels, Metadata, ValueInfo};
use proto::{GraphProto, ModelProto};

/// The domain of the plain operators; an empty name means the same.
pub const PLAIN: &str = "ai.onnx";
/// The domain of trees, linear models and encoders.
pub const ML: &str = "ai.onnx.ml";

/// A model that was read and found in order.
#[derive(Debug)]
pub struct ModelFile {
    bytes: Bytes,
    graph: GraphProto,
    opsets: HashMap<String, i64>,
    order: Vec<usize>,
    metadata: Metadata,
    limits: Limits,
}

impl ModelFile {
    /// Reads a model within limits.
    pub fn read(bytes: impl Into<Bytes>, limits: &Limits) -> Result<Self> {
        let bytes = bytes.into();
        limits::check(&bytes, limits)?;
        let model = ModelProto::decode(bytes.clone())
            .map_err(|error| refused("it cannot be decoded").caused_by(error))?;
        let opsets = opsets(&model)?;
        graph::check_constants(&model)?;
        let graph = model.graph.ok_or_else(|| refused("it has no graph"))?;
        let order = graph::order(&graph)?;
        let metadata = metadata::of(&graph)?;
        Ok(Self { bytes, graph, opsets, order, metadata, limits: limits.clone() })
    }

    /// The file as it came.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn graph(&self) -> &GraphProto {
        &self.graph
    }

    /// The nodes in an order in which each comes after those it depends on.
    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    /// The version of an operator set that the model was written for.
    pub(crate) fn opset(&self, domain: &str) -> Option<i64> {
        self.opsets.get(plain(domain)).copied()
    }
}

pub(crate) fn plain(domain: &str) -> &str {
    if domain.is_empty() { PLAIN } else { domain }
}

fn opsets(model: &ModelProto) -> Result<HashMap<String, i64>> {
    let mut opsets = HashMap::new();
    for import in &model.opset_import {
        let (domain, version) = (plain(import.domain()), import.version());
        if version < 1 {
            return Err(refused(format!("it imports {} at version {version}", shown(domain))));
        }
        if opsets.insert(domain.to_owned(), version).is_some_and(|other| other != version) {
            return Err(refused(format!("it imports {} twice", shown(domain))));
        }
    }
    if opsets.is_empty() {
        return Err(refused("it does not say which operator sets it uses"));
    }
    Ok(opsets)
}

/// A refusal of a model: one sentence that begins with it.
pub(crate) fn refused(why: impl std::fmt::Display) -> Error {
    Error::new(&code::INVALID_INPUT, format!("the model is refused: {why}")).at("model")
}

/// A name from the model, fit for a message: quoted, on one line, bounded.
pub(crate) fn shown(name: &str) -> String {
    let short: String = name.chars().take(80).collect();
    let more = if short.len() < name.len() { "…" } else { "" };
    format!("{short:?}{more}")
}
