//! Models put together by hand, for tests that need one of a certain kind.

use bytes::Bytes;
use falaj_inference::onnx::proto::{
    AttributeProto, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue,
    ValueInfoProto,
};
use prost::Message;

pub(crate) const FLOAT: i32 = 1;
pub(crate) const INT64: i32 = 7;

pub(crate) fn value(name: &str, kind: i32, dims: &[i64]) -> ValueInfoProto {
    let dim = dims.iter().map(|&dim| Dimension {
        value: (dim >= 0).then_some(DimensionValue::Value(dim)),
        denotation: None,
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor = TypeValue::Tensor(TensorType { elem_type: Some(kind), shape });
    let of = TypeProto { value: Some(tensor), denotation: None };
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(of), ..ValueInfoProto::default() }
}

pub(crate) fn node(domain: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        op_type: Some(op.to_owned()),
        domain: Some(domain.to_owned()),
        name: Some(format!("the_{op}")),
        ..NodeProto::default()
    }
}

pub(crate) fn attribute(name: &str) -> AttributeProto {
    AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() }
}

pub(crate) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name) }
}

pub(crate) fn floats(name: &str, floats: &[f32]) -> AttributeProto {
    AttributeProto { floats: floats.to_vec(), ..attribute(name) }
}

pub(crate) fn words(name: &str, words: &[&str]) -> AttributeProto {
    let strings = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    AttributeProto { strings, ..attribute(name) }
}

pub(crate) fn constant(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: dims.to_vec(),
        data_type: Some(FLOAT),
        float_data: data.to_vec(),
        ..TensorProto::default()
    }
}

/// A graph from `x` to `y`, both FP32 of two dimensions.
pub(crate) fn graph(nodes: Vec<NodeProto>) -> GraphProto {
    GraphProto {
        node: nodes,
        input: vec![value("x", FLOAT, &[-1, 2])],
        output: vec![value("y", FLOAT, &[-1, 2])],
        ..GraphProto::default()
    }
}

pub(crate) fn model(graph: GraphProto) -> ModelProto {
    let import = |domain: &str, version| OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![import("", 17), import("ai.onnx.ml", 3)],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

pub(crate) fn bytes(graph: GraphProto) -> Vec<u8> {
    model(graph).encode_to_vec()
}
