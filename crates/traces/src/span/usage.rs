//! Adding up tokens and cost over a trace.
//!
//! Some libraries put the sum of a subtree on its top span. So a span counts only if no span above
//! it has numbers of its own.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

/// A span in the tree, with its numbers if it has any.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: Vec<u8>,
    pub parent: Option<Vec<u8>>,
    pub numbers: Option<Map<String, Value>>,
}

/// What is added up: always shown, and shown where given.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    always: &'static [&'static str],
    given: &'static [&'static str],
    whole: bool,
}

pub const TOKENS: Kind = Kind {
    always: &["input_tokens", "output_tokens", "total_tokens"],
    given: &[
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation_input_tokens_above_1hr",
    ],
    whole: true,
};

pub const COST: Kind =
    Kind { always: &["input_cost", "output_cost", "total_cost"], given: &[], whole: false };

/// The sum over a trace; none if no span has numbers.
#[must_use]
pub fn total(nodes: &[Node], kind: Kind) -> Option<Map<String, Value>> {
    let places: HashMap<&[u8], usize> =
        nodes.iter().enumerate().map(|(at, node)| (node.id.as_slice(), at)).collect();
    let above = |node: &Node| places.get(node.parent.as_deref()?).copied();
    let mut below: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut todo = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        match above(node) {
            Some(parent) => below.entry(parent).or_default().push(at),
            None => todo.push((at, false)),
        }
    }
    let mut sums: HashMap<&str, f64> = HashMap::new();
    let mut any = false;
    while let Some((at, covered)) = todo.pop() {
        let numbers = nodes[at].numbers.as_ref();
        if let Some(numbers) = numbers.filter(|_| !covered) {
            any = true;
            for key in kind.always.iter().chain(kind.given) {
                if let Some(number) = numbers.get(*key).and_then(Value::as_f64) {
                    *sums.entry(key).or_default() += number;
                }
            }
        }
        // A ring of spans is never reached from a first one, and so not counted.
        let children = below.remove(&at).unwrap_or_default();
        todo.extend(children.into_iter().map(|child| (child, covered || numbers.is_some())));
    }
    any.then(|| shown(&sums, kind))
}

fn shown(sums: &HashMap<&str, f64>, kind: Kind) -> Map<String, Value> {
    let mut all = Map::new();
    for key in kind.always {
        all.insert((*key).to_owned(), number(sums.get(key).copied().unwrap_or_default(), kind));
    }
    for key in kind.given {
        if let Some(sum) = sums.get(key) {
            all.insert((*key).to_owned(), number(*sum, kind));
        }
    }
    all
}

fn number(sum: f64, kind: Kind) -> Value {
    #[allow(clippy::cast_possible_truncation, reason = "a cast saturates, and tokens are few")]
    if kind.whole {
        return Value::from(sum as i64);
    }
    Number::from_f64(sum).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(id: u8, parent: u8, tokens: i64) -> Node {
        let numbers = json!({ "input_tokens": tokens, "total_tokens": tokens });
        Node {
            id: vec![id],
            parent: (parent > 0).then(|| vec![parent]),
            numbers: (tokens > 0).then(|| numbers.as_object().unwrap().clone()),
        }
    }

    #[test]
    fn a_sum_on_top_hides_what_it_sums() {
        for (nodes, sum) in [
            (vec![node(1, 0, 0), node(2, 1, 3), node(3, 1, 4)], Some(7)),
            (vec![node(1, 0, 7), node(2, 1, 3), node(3, 2, 4)], Some(7)),
            (vec![node(1, 0, 0), node(2, 1, 5), node(3, 2, 0), node(4, 3, 5)], Some(5)),
            (vec![node(2, 9, 5)], Some(5)),
            (vec![node(1, 0, 0)], None),
            (vec![node(1, 2, 5), node(2, 1, 5)], None),
            (Vec::new(), None),
        ] {
            let found = total(&nodes, TOKENS);
            assert_eq!(found.map(|all| all["total_tokens"].as_i64()), sum.map(Some), "{nodes:?}");
        }
    }
}
