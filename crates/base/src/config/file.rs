//! The TOML layer: values with the line each stands on.

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::schema::{Node, Schema, join};
use super::{Source, Stack, invalid, nearest};
use crate::error::Result;

/// The largest configuration file worth reading; more is a mistaken path.
const MAX_FILE: u64 = 1 << 20;

/// Reads the file onto the stack, refusing keys that the schema does not have.
pub(super) fn read(schema: &Schema, path: &Path, stack: &mut Stack) -> Result<()> {
    let cannot =
        |reason: String| invalid(format!("the configuration file {} {reason}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| cannot(format!("cannot be read: {e}")))?.len();
    if size > MAX_FILE {
        return Err(cannot(format!("has {size} bytes; allowed: up to {MAX_FILE}")));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| cannot(format!("cannot be read: {error}")))?;
    let lines = Lines(&text);
    // The parser's own rendering quotes the line, which may hold a secret; its message does not.
    let table = DeTable::parse(&text).map_err(|error| {
        let line = lines.of(&error.span().unwrap_or_default());
        invalid(format!("{}:{line} is not valid TOML: {}", path.display(), error.message()))
    })?;
    let reader = Reader { schema, path, lines };
    reader.table(&schema.root.node, table.get_ref(), "", stack)
}

/// Turns byte offsets into line numbers.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, span: &Range<usize>) -> usize {
        1 + self.0.get(..span.start).unwrap_or_default().matches('\n').count()
    }
}

struct Reader<'a> {
    schema: &'a Schema,
    path: &'a Path,
    lines: Lines<'a>,
}

impl Reader<'_> {
    fn table(&self, node: &Node, table: &DeTable<'_>, at: &str, stack: &mut Stack) -> Result<()> {
        let (Node::Table(fields) | Node::Variants(fields)) = node else { return Ok(()) };
        for (name, value) in table {
            let key = join(at, name.get_ref());
            let Some(field) = fields.get(name.get_ref().as_ref()) else {
                return Err(self.unknown(&key, &name.span()));
            };
            let inner = match (&field.node, value.get_ref()) {
                (Node::Table(_) | Node::Variants(_), DeValue::Table(inner)) => inner,
                (node, value_ref) => {
                    let json = self.convert(node, value_ref, &key, &value.span())?;
                    let line = self.lines.of(&name.span());
                    let source = Source::File { path: self.path.to_owned(), line };
                    stack.put(&key, json, source);
                    continue;
                }
            };
            self.table(&field.node, inner, &key, stack)?;
        }
        Ok(())
    }

    /// A value as JSON; tables inside lists and maps are checked for unknown keys on the way.
    fn convert(
        &self,
        node: &Node,
        value: &DeValue<'_>,
        at: &str,
        span: &Range<usize>,
    ) -> Result<Value> {
        Ok(match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Integer(digits) => {
                let number = i64::from_str_radix(digits.as_str(), digits.radix());
                Value::from(number.map_err(|_| self.number(at, digits.as_str(), span))?)
            }
            DeValue::Float(digits) => {
                let number: f64 =
                    digits.as_str().parse().map_err(|_| self.number(at, digits.as_str(), span))?;
                // JSON has no infinity; no key of ours wants one either.
                if !number.is_finite() {
                    return Err(self.number(at, digits.as_str(), span));
                }
                Value::from(number)
            }
            DeValue::Array(items) => {
                let inner = if let Node::List(inner) = node { inner } else { node };
                let convert = |(index, item): (usize, &toml::Spanned<DeValue<'_>>)| {
                    self.convert(inner, item.get_ref(), &format!("{at}[{index}]"), &item.span())
                };
                items.iter().enumerate().map(convert).collect::<Result<Vec<_>>>()?.into()
            }
            DeValue::Table(table) => {
                let mut object = Map::new();
                for (name, value) in table {
                    let key = join(at, name.get_ref());
                    let inner = match node {
                        Node::Table(fields) | Node::Variants(fields) => fields
                            .get(name.get_ref().as_ref())
                            .map(|field| &field.node)
                            .ok_or_else(|| self.unknown(&key, &name.span()))?,
                        Node::Names(inner) => inner,
                        Node::List(_) | Node::Leaf(_) => node,
                    };
                    let value = self.convert(inner, value.get_ref(), &key, &value.span())?;
                    object.insert(name.get_ref().to_string(), value);
                }
                Value::Object(object)
            }
        })
    }

    fn unknown(&self, key: &str, span: &Range<usize>) -> crate::Error {
        let place = format!("{}:{}", self.path.display(), self.lines.of(span));
        let keys = self.schema.all_paths();
        let wanted = without_indices(key);
        let hint = nearest::key(&wanted, keys.iter().map(String::as_str))
            .map_or_else(String::new, |near| format!("; the nearest known key is `{near}`"));
        invalid(format!("{place}: there is no key `{key}`{hint}")).at(key)
    }

    fn number(&self, key: &str, digits: &str, span: &Range<usize>) -> crate::Error {
        let place = format!("{}:{}", self.path.display(), self.lines.of(span));
        invalid(format!("{place}: `{key}` is {digits}, a number out of range")).at(key)
    }
}

/// `issuers[3].url` as the schema spells it: `issuers[].url`.
fn without_indices(key: &str) -> String {
    let digit = |c: char| c.is_ascii_digit();
    key.split('[').map(|part| part.trim_start_matches(digit)).collect::<Vec<_>>().join("[")
}
