//! The reference page, generated from the structs: doc comments, types, limits, defaults and
//! variable names. Nobody writes it by hand, so it cannot be wrong about the code.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::check;
use super::schema::{Field, Fields, Kind, Leaf, Node, Schema, env_name, join};
use super::show::inline;
use crate::error::{Error, Result};

const INTRODUCTION: &str = "\
# Configuration reference

Values come from the built-in defaults, then the TOML file, then the environment, then flags; the
later one wins. An unknown key or `FALAJ_…` variable is refused. An empty variable counts as not
set; a list is written in a variable with commas between its items. Sizes are written like `64MiB`,
times like `30s`, `5m` or `1h30m`.
";

/// The Markdown reference of every key of `T`.
pub fn reference<T: JsonSchema + Serialize + Default>() -> Result<String> {
    let schema = Schema::of::<T>()?;
    let defaults = serde_json::to_value(T::default()).map_err(Error::internal)?;
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, &schema.root, "", Some(&defaults), true);
    Ok(page)
}

/// One table: its own keys first, then the tables inside it.
fn section(page: &mut String, field: &Field, at: &str, default: Option<&Value>, variables: bool) {
    let Some(fields) = fields(&field.node) else { return };
    // Writing into a String cannot fail.
    if !at.is_empty() {
        let brackets = if at.ends_with("[]") { ("[[", "]]") } else { ("[", "]") };
        let name = at.trim_end_matches("[]");
        let _ = write!(page, "\n## `{}{name}{}`\n", brackets.0, brackets.1);
        if !field.doc.is_empty() {
            let _ = write!(page, "\n{}\n", field.doc);
        }
    }
    let default_of = |name: &str| default.and_then(|value| value.get(name));
    for (name, field) in fields.iter().filter(|(_, field)| inner_table(&field.node).is_none()) {
        key(page, field, &join(at, name), default_of(name), variables);
    }
    for (name, field) in fields.iter() {
        let path = join(at, name);
        match (&field.node, inner_table(&field.node)) {
            (Node::List(_), Some(item)) => {
                let item = Field { node: item.clone(), doc: field.doc.clone() };
                section(page, &item, &format!("{path}[]"), None, false);
            }
            (Node::Names(_), Some(item)) => {
                let item = Field { node: item.clone(), doc: field.doc.clone() };
                section(page, &item, &format!("{path}.NAME"), None, false);
            }
            (_, Some(_)) => section(page, field, &path, default_of(name), variables),
            (_, None) => {}
        }
    }
}

fn key(page: &mut String, field: &Field, path: &str, default: Option<&Value>, variables: bool) {
    let _ = write!(page, "\n### `{path}`\n");
    if !field.doc.is_empty() {
        let _ = write!(page, "\n{}\n", field.doc);
    }
    let _ = write!(page, "\n- Value: {}\n", describe(&field.node));
    match default {
        None | Some(Value::Null) => page.push_str("- Default: not set\n"),
        Some(value) => drop(writeln!(page, "- Default: `{}`", inline(value))),
    }
    if variables && !matches!(field.node, Node::Names(_)) {
        let _ = writeln!(page, "- Environment: `{}`", env_name(path));
    }
}

fn describe(node: &Node) -> String {
    match node {
        Node::Leaf(Leaf { kind: Kind::Secret, .. }) => "a secret text; never shown".to_owned(),
        Node::Leaf(leaf) if !leaf.choices.is_empty() => {
            let words: Vec<_> = leaf.choices.iter().map(|word| format!("`{word}`")).collect();
            format!("one of {}", words.join(", "))
        }
        Node::Leaf(leaf) => check::allowed(leaf),
        Node::List(item) => format!("a list; each item: {}", describe(item)),
        Node::Names(item) => format!("a table of names; each value: {}", describe(item)),
        Node::Table(_) | Node::Variants(_) => "a table".to_owned(),
    }
}

fn fields(node: &Node) -> Option<&Fields> {
    match node {
        Node::Table(fields) | Node::Variants(fields) => Some(fields),
        _ => None,
    }
}

/// The table a key leads to, directly or through a list or map.
fn inner_table(node: &Node) -> Option<&Node> {
    match node {
        Node::Table(_) | Node::Variants(_) => Some(node),
        Node::List(item) | Node::Names(item) => inner_table(item),
        Node::Leaf(_) => None,
    }
}
