//! Weights that a model keeps turned (`Gemm` with `transB`, as `PyTorch` writes it), turned back once
//! when it is loaded: at each run that would take longer than the product itself.
//!
//! Must hold: what the model computes stays the same. A name that is used for turned weights is one
//! that the model has not.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use falaj_base::Result;

use crate::onnx::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use crate::onnx::{PLAIN, plain, read_tensor};
use crate::tensor::{Data, Tensor};

/// What was turned.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// By the names that nodes now know them by.
    pub(super) weights: Vec<(String, Tensor)>,
    /// Constants that nobody asks for any more.
    pub(super) replaced: HashSet<String>,
}

/// Changes nodes whose weights are constants that lie turned, and gives those weights.
pub(super) fn turn_weights(graph: &GraphProto, nodes: &mut [Cow<'_, NodeProto>]) -> Result<Turned> {
    let mut turned = Turned::default();
    if !nodes.iter().any(|node| turned_weights(node).is_some()) {
        return Ok(turned);
    }
    let constants: HashMap<&str, &TensorProto> =
        graph.initializer.iter().map(|tensor| (tensor.name(), tensor)).collect();
    let taken = names(graph);
    for node in nodes.iter_mut() {
        let Some(name) = turned_weights(node) else { continue };
        let Some(own) = constants.get(name).filter(|own| own.dims.len() == 2) else { continue };
        let (name, new) = (name.to_owned(), format!("{name} (turned)"));
        if taken.contains(new.as_str()) {
            continue;
        }
        if !turned.replaced.contains(&name) {
            let Some(weights) = across(&read_tensor(own)?)? else { continue };
            turned.weights.push((new.clone(), weights));
            turned.replaced.insert(name);
        }
        let node = node.to_mut();
        node.attribute.retain(|attribute| attribute.name() != "transB");
        node.input[1] = new;
    }
    let asked: HashSet<&str> =
        nodes.iter().flat_map(|node| &node.input).map(String::as_str).collect();
    let given: HashSet<&str> = graph.output.iter().map(ValueInfoProto::name).collect();
    turned.replaced.retain(|name| !asked.contains(name.as_str()) && !given.contains(name.as_str()));
    Ok(turned)
}

/// Every name that the model has.
fn names(graph: &GraphProto) -> HashSet<&str> {
    let of_nodes = graph.node.iter().flat_map(|node| node.input.iter().chain(&node.output));
    let constants = graph.initializer.iter().map(TensorProto::name);
    let inputs = graph.input.iter().map(ValueInfoProto::name);
    of_nodes.map(String::as_str).chain(constants).chain(inputs).collect()
}

/// The name of the weights that a node turns at each run.
fn turned_weights(node: &NodeProto) -> Option<&str> {
    let turns = |node: &NodeProto| {
        let flag = node.attribute.iter().find(|attribute| attribute.name() == "transB");
        flag.and_then(|flag| flag.i).is_some_and(|flag| flag != 0)
    };
    let gemm = node.op_type() == "Gemm" && plain(node.domain()) == PLAIN && turns(node);
    node.input.get(1).filter(|_| gemm).map(String::as_str)
}

/// A matrix turned; none of a type that products are not made of.
fn across(tensor: &Tensor) -> Result<Option<Tensor>> {
    let &[rows, columns] = tensor.shape() else { return Ok(None) };
    let places = || (0..columns).flat_map(move |column| (0..rows).map(move |row| (row, column)));
    let place = move |(row, column)| row * columns + column;
    let data = match tensor.data() {
        Data::F32(all) => Data::F32(places().map(|at| all[place(at)]).collect()),
        Data::F64(all) => Data::F64(places().map(|at| all[place(at)]).collect()),
        _ => return Ok(None),
    };
    Tensor::new(vec![columns, rows], data).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::AttributeProto;

    fn weights(name: &str) -> TensorProto {
        TensorProto {
            name: Some(name.to_owned()),
            dims: vec![2, 3],
            data_type: Some(1),
            float_data: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            ..TensorProto::default()
        }
    }

    fn gemm(weights: &str, turned: i64) -> NodeProto {
        let flag = AttributeProto {
            name: Some("transB".to_owned()),
            i: Some(turned),
            ..AttributeProto::default()
        };
        NodeProto {
            op_type: Some("Gemm".to_owned()),
            input: vec!["x".to_owned(), weights.to_owned()],
            output: vec!["y".to_owned()],
            attribute: vec![flag],
            ..NodeProto::default()
        }
    }

    fn graph(node: Vec<NodeProto>) -> GraphProto {
        GraphProto { node, initializer: vec![weights("w")], ..GraphProto::default() }
    }

    #[test]
    fn weights_are_turned_once_and_the_old_ones_go() {
        let graph = graph(vec![gemm("w", 1), gemm("w", 1)]);
        let mut nodes: Vec<_> = graph.node.iter().map(Cow::Borrowed).collect();
        let turned = turn_weights(&graph, &mut nodes).unwrap();
        let [(name, tensor)] = turned.weights.as_slice() else { panic!("{:?}", turned.weights) };
        assert_eq!(tensor.shape(), [3, 2]);
        assert_eq!(tensor.get::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert!(turned.replaced.contains("w"));
        for node in &nodes {
            assert_eq!(node.input[1], *name);
            assert!(node.attribute.is_empty());
        }
    }

    #[test]
    fn what_others_ask_for_stays() {
        let graph = graph(vec![gemm("w", 1), gemm("w", 0)]);
        let mut nodes: Vec<_> = graph.node.iter().map(Cow::Borrowed).collect();
        let turned = turn_weights(&graph, &mut nodes).unwrap();
        assert_eq!(turned.weights.len(), 1);
        assert!(!turned.replaced.contains("w"));
        assert_eq!(nodes[1].input[1], "w");
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let graph = graph(vec![gemm("w", 1), gemm("w (turned)", 0)]);
        let mut nodes: Vec<_> = graph.node.iter().map(Cow::Borrowed).collect();
        let turned = turn_weights(&graph, &mut nodes).unwrap();
        assert!(turned.weights.is_empty());
        assert_eq!(nodes[0].input[1], "w");
    }
}
