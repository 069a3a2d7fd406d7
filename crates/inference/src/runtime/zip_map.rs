//! `ZipMap` taken out of a model before the library sees it. What it makes are dictionaries, slow to
//! build and slower to take apart again; the matrix that goes in is what is wanted.

use std::collections::HashSet;

use bytes::Bytes;
use falaj_base::{Error, Result};
use prost::Message;

use crate::onnx::proto::{
    ModelProto, OperatorSetIdProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
};
use crate::onnx::{ModelFile, PLAIN, is_zip_map, plain};
use crate::tensor::DataType;

/// The plain operators' version that a model without any gets, for `Identity`.
const ANY_VERSION: i64 = 13;

/// The model's bytes with an `Identity` in the place of each `ZipMap`.
pub(super) fn without(model: &ModelFile) -> Result<Bytes> {
    if !model.graph().node.iter().any(is_zip_map) {
        return Ok(model.bytes().clone());
    }
    let mut proto = ModelProto::decode(model.bytes().clone()).map_err(Error::internal)?;
    let mut freed = HashSet::new();
    if let Some(graph) = &mut proto.graph {
        for node in graph.node.iter_mut().filter(|node| is_zip_map(node)) {
            node.op_type = Some("Identity".to_owned());
            node.domain = None;
            node.attribute.clear();
            freed.extend(node.output.iter().cloned());
        }
        graph.value_info.retain(|value| !freed.contains(value.name()));
        let output = |value: &&mut ValueInfoProto| freed.contains(value.name());
        for value in graph.output.iter_mut().filter(output) {
            let elements = TensorType { elem_type: Some(DataType::F32.onnx()), shape: None };
            let tensor = Some(TypeValue::Tensor(elements));
            value.r#type = Some(TypeProto { value: tensor, denotation: None });
        }
    }
    if !proto.opset_import.iter().any(|import| plain(import.domain()) == PLAIN) {
        let import = OperatorSetIdProto { domain: None, version: Some(ANY_VERSION) };
        proto.opset_import.push(import);
    }
    Ok(proto.encode_to_vec().into())
}
