//! Configuration as TOML text: the effective values, and the commented file a newcomer starts
//! from.
//!
//! The text is written here rather than by the TOML crate because each line carries a comment.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::schema::{Field, Node, Schema, join};
use super::{Loaded, Origins, Source};
use crate::error::{Error, Result};

/// The effective values as TOML. Secrets show as a mask; a value that is not a default carries a
/// comment that says where it came from.
pub fn show<T: Serialize>(loaded: &Loaded<T>) -> Result<String> {
    let value = serde_json::to_value(&loaded.value).map_err(Error::internal)?;
    let mut text = String::new();
    if let Value::Object(root) = &value {
        table(&mut text, root, "", "", &loaded.origins);
    }
    Ok(text)
}

/// Writes the plain values of a table, then the tables inside it, as TOML wants it. `at` is the
/// path for the header, `key` the same with list indices, which finds the source.
fn table(text: &mut String, values: &Map<String, Value>, at: &str, key: &str, origins: &Origins) {
    for (name, value) in values.iter().filter(|(_, value)| is_plain(value)) {
        let from = match origins.of(&join(key, name)) {
            Source::Default => String::new(),
            source => format!("  # {}", one_line(&source.to_string())),
        };
        let _ = writeln!(text, "{} = {}{from}", bare(name), inline(value));
    }
    for (name, value) in values {
        let (at, key) = (join(at, &bare(name)), join(key, name));
        match value {
            Value::Object(inner) => {
                let _ = write!(text, "\n[{at}]\n");
                table(text, inner, &at, &key, origins);
            }
            Value::Array(items) if !is_plain(value) => {
                for (index, item) in items.iter().enumerate() {
                    let Value::Object(inner) = item else { continue };
                    let _ = write!(text, "\n[[{at}]]\n");
                    table(text, inner, &at, &format!("{key}[{index}]"), origins);
                }
            }
            _ => {}
        }
    }
}

/// Whether a value fits on its own line; absent values are left out altogether.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Object(_) => false,
        Value::Array(items) => {
            !(items.iter().any(Value::is_object) && items.iter().all(Value::is_object))
        }
        _ => true,
    }
}

/// A value on one line.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<_> =
                set.map(|(name, value)| format!("{} = {}", bare(name), inline(value))).collect();
            if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
        }
    }
}

/// A basic TOML string.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A key, quoted if TOML asks for it.
fn bare(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !name.is_empty() && name.bytes().all(plain) { name.to_owned() } else { quote(name) }
}

/// A comment must not be able to start a new line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A file with every key of `T` explained and commented out at its default, except those in
/// `set`, which are dotted keys with their value.
pub fn template<T: JsonSchema + Serialize + Default>(set: &[(&str, Value)]) -> Result<String> {
    let schema = Schema::of::<T>()?;
    let defaults = serde_json::to_value(T::default()).map_err(Error::internal)?;
    let mut text = String::new();
    explain(&mut text, &schema.root, "", &defaults, set);
    Ok(text)
}

fn explain(text: &mut String, field: &Field, at: &str, default: &Value, set: &[(&str, Value)]) {
    let Node::Table(fields) = &field.node else { return };
    if !at.is_empty() {
        text.push('\n');
        comment(text, &field.doc);
        // The header of a table that is absent by default would make it present.
        let present = default.is_object() || set.iter().any(|(key, _)| key.starts_with(at));
        let _ = writeln!(text, "{}[{at}]", if present { "" } else { "# " });
    }
    for (name, field) in fields.iter().filter(|(_, f)| !matches!(f.node, Node::Table(_))) {
        text.push('\n');
        comment(text, &field.doc);
        let path = join(at, name);
        match (set.iter().find(|(key, _)| *key == path), &default[name]) {
            (Some((_, value)), _) => drop(writeln!(text, "{} = {}", bare(name), inline(value))),
            (None, Value::Null) => drop(writeln!(text, "# {} is not set", bare(name))),
            (None, value) => drop(writeln!(text, "# {} = {}", bare(name), inline(value))),
        }
    }
    for (name, field) in fields.iter() {
        explain(text, field, &join(at, name), &default[name], set);
    }
}

fn comment(text: &mut String, doc: &str) {
    for line in doc.lines() {
        let _ = writeln!(text, "# {}", one_line(line).trim_end());
    }
}
