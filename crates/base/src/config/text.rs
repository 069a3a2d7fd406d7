//! The layers written as plain text: environment variables and flags.

use std::collections::BTreeMap;

use serde_json::Value;

use super::schema::{Key, Kind, Leaf, Node, PREFIX, Schema};
use super::{Source, Stack, check, invalid, nearest};
use crate::error::Result;

/// Variables that are ours but not configuration keys: the client reads them, or they name the
/// file itself. A configuration without the key of the same name ignores them too.
pub const RESERVED: &[&str] = &[
    "FALAJ_CACERT",
    "FALAJ_CONFIG",
    "FALAJ_DATABASE_URL",
    "FALAJ_DATA_DIR",
    "FALAJ_OUTPUT",
    "FALAJ_TOKEN",
    "FALAJ_URL",
];

/// Variables with this beginning steer the project's own tests.
const TEST_PREFIX: &str = "FALAJ_TEST_";

pub(super) fn environment(
    schema: &Schema,
    env: impl Iterator<Item = (String, String)>,
    stack: &mut Stack,
) -> Result<()> {
    let keys = schema.keys();
    let by_name: BTreeMap<String, &Key<'_>> = keys.iter().map(|key| (key.env(), key)).collect();
    // In name order, so that of several mistakes the same one is reported each time.
    let ours: BTreeMap<String, String> =
        env.filter(|(name, text)| name.starts_with(PREFIX) && !text.is_empty()).collect();
    for (name, text) in ours {
        let Some(key) = by_name.get(&name) else {
            if RESERVED.contains(&name.as_str()) || name.starts_with(TEST_PREFIX) {
                continue;
            }
            return Err(unknown_variable(&name, by_name.keys()));
        };
        let source = Source::Environment(name);
        let value = parse(key, &text, &source)?;
        stack.put(&key.path, value, source);
    }
    Ok(())
}

fn unknown_variable<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> crate::Error {
    let known = known.cloned().chain(RESERVED.iter().map(|name| (*name).to_owned()));
    let hint = nearest::word(name, known)
        .map_or_else(String::new, |near| format!("; the nearest known one is {near}"));
    invalid(format!("there is no variable {name}{hint}")).at(name)
}

pub(super) fn flags(
    schema: &Schema,
    flags: Vec<(String, String)>,
    stack: &mut Stack,
) -> Result<()> {
    let keys = schema.keys();
    for (path, text) in flags {
        let Some(key) = keys.iter().find(|key| key.path == path) else {
            let hint = nearest::key(&path, keys.iter().map(|key| key.path.as_str()))
                .map_or_else(String::new, |near| format!("; the nearest known key is `{near}`"));
            return Err(invalid(format!("there is no key `{path}`{hint}")).at(path));
        };
        let source = Source::Flag(path);
        let value = parse(key, &text, &source)?;
        stack.put(&key.path, value, source);
    }
    Ok(())
}

/// Reads a text as the key's type. A list of plain values is separated by commas.
fn parse(key: &Key<'_>, text: &str, source: &Source) -> Result<Value> {
    match &key.field.node {
        Node::Leaf(leaf) => {
            plain(leaf, text).ok_or_else(|| check::refused(&key.path, leaf, &text.into(), source))
        }
        Node::List(item) => {
            let Node::Leaf(leaf) = item.as_ref() else { return Err(file_only(key, source)) };
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            let parse = |word: &str| {
                plain(leaf, word)
                    .ok_or_else(|| check::refused(&key.path, leaf, &word.into(), source))
            };
            words.map(parse).collect::<Result<Vec<_>>>().map(Value::Array)
        }
        Node::Names(_) | Node::Table(_) | Node::Variants(_) => Err(file_only(key, source)),
    }
}

fn plain(leaf: &Leaf, text: &str) -> Option<Value> {
    Some(match leaf.kind {
        Kind::Bool => match text {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            _ => return None,
        },
        Kind::Integer => text
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| text.parse::<u64>().map(Value::from))
            .ok()?,
        Kind::Number => Value::from(text.parse::<f64>().ok().filter(|number| number.is_finite())?),
        Kind::Text | Kind::Secret | Kind::Size | Kind::Duration | Kind::Other => text.into(),
    })
}

fn file_only(key: &Key<'_>, source: &Source) -> crate::Error {
    invalid(format!("`{}` ({source}) is a table: it can only be set in the file", key.path))
        .at(&key.path)
}
