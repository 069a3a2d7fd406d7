//! Types and limits, checked on the stacked values before the struct is built, so that the error
//! can name the key, the value, what is allowed and where the value came from.

use serde_json::Value;

use super::schema::{Kind, Leaf, Node, Schema, join};
use super::{Origins, Source, Stack, invalid};
use crate::error::{Error, Result};
use crate::quantity::{ByteSize, HumanDuration};
use crate::secret::HIDDEN;

pub(super) fn check(schema: &Schema, stack: &Stack) -> Result<()> {
    let tree = Value::Object(stack.tree.clone());
    walk(&schema.root.node, &tree, "", &stack.origins)
}

fn walk(node: &Node, value: &Value, at: &str, origins: &Origins) -> Result<()> {
    match (node, value) {
        (Node::Table(fields) | Node::Variants(fields), Value::Object(values)) => {
            for (name, value) in values {
                if let Some(field) = fields.get(name) {
                    walk(&field.node, value, &join(at, name), origins)?;
                }
            }
            Ok(())
        }
        (Node::List(item), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                walk(item, value, &format!("{at}[{index}]"), origins)?;
            }
            Ok(())
        }
        (Node::Names(item), Value::Object(values)) => {
            for (name, value) in values {
                walk(item, value, &join(at, name), origins)?;
            }
            Ok(())
        }
        (Node::Leaf(leaf), value) if fits(leaf, value) => Ok(()),
        (Node::Leaf(leaf), value) => Err(refused(at, leaf, value, origins.of(at))),
        (Node::Table(_) | Node::Names(_), value) => {
            Err(refuse(at, value, "a table", origins.of(at)))
        }
        (Node::List(_), value) => Err(refuse(at, value, "a list", origins.of(at))),
        // A variant without fields may be written as its bare name; the type decides.
        (Node::Variants(_), _) => Ok(()),
    }
}

fn fits(leaf: &Leaf, value: &Value) -> bool {
    if !leaf.choices.is_empty() {
        return leaf.kind == Kind::Other
            || value.as_str().is_some_and(|text| leaf.choices.iter().any(|word| word == text));
    }
    let number = |number: Option<f64>| {
        number.is_some_and(|number| {
            leaf.min.is_none_or(|min| number >= min) && leaf.max.is_none_or(|max| number <= max)
        })
    };
    let text = |text: &str| {
        let length = text.chars().count() as u64;
        leaf.min_length.is_none_or(|min| length >= min)
            && leaf.max_length.is_none_or(|max| length <= max)
    };
    match leaf.kind {
        Kind::Bool => value.is_boolean(),
        Kind::Integer => (value.is_i64() || value.is_u64()) && number(value.as_f64()),
        Kind::Number => number(value.as_f64()),
        Kind::Text => value.as_str().is_some_and(text),
        // The mask that `show` prints is nobody's password: refusing it catches a copied output.
        Kind::Secret => value.as_str().is_some_and(|value| text(value) && value != HIDDEN),
        Kind::Size => serde_json::from_value::<ByteSize>(value.clone()).is_ok(),
        Kind::Duration => serde_json::from_value::<HumanDuration>(value.clone()).is_ok(),
        Kind::Other => true,
    }
}

/// What a leaf accepts, in words.
pub(super) fn allowed(leaf: &Leaf) -> String {
    if !leaf.choices.is_empty() {
        return leaf.choices.join(", ");
    }
    let range = |what: &str, min: Option<f64>, max: Option<f64>| match (min, max) {
        (Some(min), Some(max)) => format!("{what} from {min} to {max}"),
        (Some(min), None) => format!("{what} of at least {min}"),
        (None, Some(max)) => format!("{what} of at most {max}"),
        (None, None) => what.to_owned(),
    };
    match leaf.kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::Integer => range("a whole number", leaf.min, leaf.max),
        Kind::Number => range("a number", leaf.min, leaf.max),
        Kind::Text | Kind::Secret => {
            let what =
                if leaf.kind == Kind::Secret { "the secret itself, a text" } else { "a text" };
            match (leaf.min_length, leaf.max_length) {
                (Some(min), Some(max)) => format!("{what} of {min} to {max} characters"),
                (Some(min), None) => format!("{what} of at least {min} characters"),
                (None, Some(max)) => format!("{what} of at most {max} characters"),
                (None, None) => what.to_owned(),
            }
        }
        Kind::Size => "a size such as 512KiB, 64MiB or 2GiB".to_owned(),
        Kind::Duration => "a time such as 250ms, 30s, 5m, 1h30m or 7d".to_owned(),
        Kind::Other => "see the reference".to_owned(),
    }
}

pub(super) fn refused(key: &str, leaf: &Leaf, value: &Value, source: &Source) -> Error {
    if leaf.kind == Kind::Secret {
        return invalid(format!("`{key}` is {HIDDEN} ({source}); allowed: {}", allowed(leaf)))
            .at(key);
    }
    refuse(key, value, &allowed(leaf), source)
}

fn refuse(key: &str, value: &Value, allowed: &str, source: &Source) -> Error {
    invalid(format!("`{key}` is {} ({source}); allowed: {allowed}", echo(value))).at(key)
}

/// The error of a value that has the right shape but that the type itself refuses, for instance a
/// text that is not an address.
pub(super) fn refused_by_type(
    schema: &Schema,
    tree: &Value,
    origins: &Origins,
    key: &str,
    error: &serde_json::Error,
) -> Error {
    let source = origins.of(key);
    let node = schema.find(key);
    if contains_secret(node) {
        return invalid(format!("`{key}` ({source}) is not accepted")).at(key);
    }
    if key == "." {
        return invalid(error.to_string());
    }
    let value = lookup(tree, key).map_or_else(String::new, |value| format!(" is {}", echo(value)));
    invalid(format!("`{key}`{value} ({source}): {error}")).at(key)
}

/// Whether a message about this value could quote a secret.
fn contains_secret(node: Option<&Node>) -> bool {
    match node {
        Some(Node::Leaf(leaf)) => leaf.kind == Kind::Secret,
        Some(Node::List(item) | Node::Names(item)) => contains_secret(Some(item)),
        // A table's own error (a missing or doubled field) quotes names only.
        None | Some(Node::Table(_) | Node::Variants(_)) => false,
    }
}

fn lookup<'a>(tree: &'a Value, key: &str) -> Option<&'a Value> {
    key.split(['.', '[']).try_fold(tree, |value, step| match step.strip_suffix(']') {
        Some(index) => value.get(index.parse::<usize>().ok()?),
        None => value.get(step),
    })
}

/// The longest piece of a value worth repeating.
const ECHO_LIMIT: usize = 80;

fn echo(value: &Value) -> String {
    match value {
        Value::Object(_) => "a table".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        plain => {
            let text = plain.to_string();
            let shown: String = text.chars().take(ECHO_LIMIT).collect();
            if shown.len() < text.len() { format!("{shown}…") } else { shown }
        }
    }
}
