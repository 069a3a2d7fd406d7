//! Experiments as a tree: a name is a path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A folder: what is in it by name, and the experiment that has the same name as the folder.
#[derive(Default)]
struct Node<'e> {
    inner: BTreeMap<String, Node<'e>>,
    experiment: Option<&'e Value>,
}

fn nodes(experiments: &[Value]) -> Node<'_> {
    let mut root = Node::default();
    for experiment in experiments {
        let name = experiment["name"].as_str().unwrap_or_default();
        let mut node = &mut root;
        for part in name.split('/').filter(|part| !part.is_empty()) {
            node = node.inner.entry(part.to_owned()).or_default();
        }
        node.experiment = Some(experiment);
    }
    root
}

/// For people: a line for each, with its id.
pub(super) fn text(experiments: &[Value]) -> String {
    let mut text = String::new();
    draw(&nodes(experiments), "", &mut text);
    text
}

fn draw(node: &Node<'_>, indent: &str, text: &mut String) {
    let count = node.inner.len();
    for (at, (name, child)) in node.inner.iter().enumerate() {
        let last = at + 1 == count;
        let (turn, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let slash = if child.inner.is_empty() { "" } else { "/" };
        // Writing into a String cannot fail.
        let _ = write!(text, "{indent}{turn}{name}{slash}");
        if let Some(id) = child.experiment.and_then(|found| found["experiment_id"].as_str()) {
            let _ = write!(text, "  ({id})");
        }
        text.push('\n');
        draw(child, &format!("{indent}{rest}"), text);
    }
}

/// For programs: folders as objects, experiments as their ids.
pub(super) fn json(experiments: &[Value]) -> Value {
    fn shown(node: &Node<'_>) -> Value {
        let mut map = Map::new();
        if let Some(id) = node.experiment.map(|found| found["experiment_id"].clone()) {
            map.insert("experiment_id".to_owned(), id);
        }
        if !node.inner.is_empty() {
            let inner = node.inner.iter().map(|(name, child)| (name.clone(), shown(child)));
            map.insert("children".to_owned(), Value::Object(inner.collect()));
        }
        Value::Object(map)
    }
    shown(&nodes(experiments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_become_folders() {
        let experiments = [("0", "Default"), ("1", "cv/a"), ("2", "cv/b/x"), ("3", "cv")]
            .map(|(id, name)| json!({ "experiment_id": id, "name": name }));
        let expected = "├─ Default  (0)\n└─ cv/  (3)\n   ├─ a  (1)\n   └─ b/\n      └─ x  (2)\n";
        assert_eq!(text(&experiments), expected);
        assert_eq!(json(&experiments)["children"]["cv"]["children"]["a"]["experiment_id"], "1");
    }
}
