//! The graph: who makes which value, and in which order.

use std::collections::{HashMap, HashSet};

use falaj_base::Result;

use super::constant;
use super::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use super::{refused, shown};

/// Looks at every tensor of the model, those in nested graphs and functions included.
pub(super) fn check_constants(model: &ModelProto) -> Result<()> {
    if let Some(graph) = &model.graph {
        check_graph(graph)?;
    }
    model.functions.iter().flat_map(|function| &function.node).try_for_each(check_node)
}

fn check_graph(graph: &GraphProto) -> Result<()> {
    if !graph.sparse_initializer.is_empty() {
        return Err(refused("it has sparse initializers, which can unfold to any size"));
    }
    graph.initializer.iter().try_for_each(constant::check)?;
    graph.node.iter().try_for_each(check_node)
}

fn check_node(node: &NodeProto) -> Result<()> {
    for attribute in &node.attribute {
        if attribute.sparse_tensor.is_some() || !attribute.sparse_tensors.is_empty() {
            return Err(refused("it has sparse tensors, which can unfold to any size"));
        }
        attribute
            .t
            .as_deref()
            .into_iter()
            .chain(&attribute.tensors)
            .try_for_each(constant::check)?;
        attribute.g.as_deref().into_iter().chain(&attribute.graphs).try_for_each(check_graph)?;
    }
    Ok(())
}

/// An order of the nodes in which each comes after those it depends on.
///
/// ONNX asks for the file to be in such an order, but exporters are lax about it. What cannot be
/// ordered has a cycle.
pub(super) fn order(graph: &GraphProto) -> Result<Vec<usize>> {
    let makers = makers(graph)?;
    let given = given(graph)?;
    if let Some(twice) = given.iter().find(|name| makers.contains_key(*name)) {
        return Err(refused(format!("a node makes {}, which is given already", shown(twice))));
    }
    let mut waiting = vec![0_usize; graph.node.len()];
    let mut followers = vec![Vec::new(); graph.node.len()];
    for (place, node) in graph.node.iter().enumerate() {
        let own: HashSet<&str> = node.input.iter().map(String::as_str).collect();
        let mut needed = HashSet::new();
        inputs(node, &mut needed);
        for name in needed {
            match makers.get(name) {
                Some(&maker) => {
                    waiting[place] += 1;
                    followers[maker].push(place);
                }
                None if given.contains(name) => {}
                // A nested graph has names of its own; the engine resolves those.
                None if !own.contains(name) => {}
                None => {
                    let by = shown(node.name());
                    return Err(refused(format!("nothing makes {}, input of {by}", shown(name))));
                }
            }
        }
    }
    for output in &graph.output {
        if !makers.contains_key(output.name()) && !given.contains(output.name()) {
            return Err(refused(format!("nothing makes its output {}", shown(output.name()))));
        }
    }
    let mut order: Vec<usize> =
        (0..graph.node.len()).filter(|&place| waiting[place] == 0).collect();
    let mut next = 0;
    while let Some(&place) = order.get(next) {
        next += 1;
        for &follower in &followers[place] {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                order.push(follower);
            }
        }
    }
    match waiting.iter().position(|&left| left > 0) {
        Some(stuck) => {
            let node = &graph.node[stuck];
            let name = if node.name().is_empty() { node.op_type() } else { node.name() };
            Err(refused(format!("its graph has a cycle through {}", shown(name))))
        }
        None => Ok(order),
    }
}

/// Which node makes which value.
fn makers(graph: &GraphProto) -> Result<HashMap<&str, usize>> {
    let mut makers = HashMap::new();
    for (place, node) in graph.node.iter().enumerate() {
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            if makers.insert(output.as_str(), place).is_some() {
                return Err(refused(format!("two nodes make {}", shown(output))));
            }
        }
    }
    Ok(makers)
}

/// The values that are there before any node runs.
fn given(graph: &GraphProto) -> Result<HashSet<&str>> {
    let mut given = HashSet::new();
    for input in &graph.input {
        if !given.insert(input.name()) {
            return Err(refused(format!("two inputs are called {}", shown(input.name()))));
        }
    }
    given.extend(graph.initializer.iter().map(TensorProto::name));
    Ok(given)
}

/// The values that a node reads, itself or in graphs inside it.
fn inputs<'a>(node: &'a NodeProto, into: &mut HashSet<&'a str>) {
    into.extend(node.input.iter().map(String::as_str).filter(|name| !name.is_empty()));
    for attribute in &node.attribute {
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            let own: HashSet<&str> =
                graph.node.iter().flat_map(|node| &node.output).map(String::as_str).collect();
            let mut outer = HashSet::new();
            graph.node.iter().for_each(|node| inputs(node, &mut outer));
            outer.extend(graph.output.iter().map(ValueInfoProto::name));
            into.extend(outer.difference(&own).copied());
        }
    }
}
