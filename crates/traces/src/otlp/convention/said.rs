//! What a span says in its attributes, as MLflow looks at it: JSON inside of a text counts as what
//! it says, and what is empty is not there.

use std::borrow::Cow;

use serde_json::Value;

use crate::otlp::message::{Any, KeyValue, attribute};
use crate::otlp::value::{any, plain};

/// The attributes of one span.
#[derive(Clone, Copy)]
pub(super) struct Said<'a>(pub &'a [KeyValue]);

impl<'a> Said<'a> {
    pub(super) fn get(self, key: &str) -> Option<&'a Any> {
        attribute(self.0, key)
    }

    pub(super) fn has(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn keys(self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|pair| pair.key.as_str())
    }

    /// A text, also one that is in quotes.
    pub(super) fn word(self, key: &str) -> Option<Cow<'a, str>> {
        let Any::Text(text) = self.get(key)? else { return None };
        if text.starts_with('"')
            && let Ok(inside) = serde_json::from_str::<String>(text)
        {
            return Some(Cow::Owned(inside));
        }
        Some(Cow::Borrowed(text))
    }

    /// A whole number, also one written as text.
    pub(super) fn count(self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Any::Int(number) => Some(*number),
            Any::Text(text) => text.trim_matches('"').parse().ok(),
            _ => None,
        }
    }

    /// The first of these that says something.
    pub(super) fn first(self, keys: &[&str]) -> Option<Any> {
        keys.iter().find_map(|key| self.content(key))
    }

    /// What an attribute says, unless that is nothing.
    pub(super) fn content(self, key: &str) -> Option<Any> {
        self.get(key).map(unpacked).filter(says_something)
    }
}

/// Libraries put JSON into texts; MLflow keeps what the text says.
pub(super) fn unpacked(value: &Any) -> Any {
    let Any::Text(text) = value else { return value.clone() };
    match serde_json::from_str::<Value>(text) {
        Ok(inside @ (Value::Object(_) | Value::Array(_) | Value::String(_))) => {
            any(&inside).value.unwrap_or_else(|| value.clone())
        }
        _ => value.clone(),
    }
}

/// The same as JSON, also where the JSON is inside of a text inside of a text.
pub(super) fn opened(value: &Any) -> Value {
    let mut value = plain(Some(value));
    for _ in 0..3 {
        let Value::String(text) = &value else { break };
        match serde_json::from_str(text) {
            Ok(inside) => value = inside,
            Err(_) => break,
        }
    }
    value
}

/// Whether it is more than an empty text, list or object, a zero or `false`. A text that reads `null`
/// is a text.
pub(super) fn says_something(value: &Any) -> bool {
    match value {
        Any::Text(text) => !text.is_empty(),
        Any::Flag(flag) => *flag,
        Any::Int(number) => *number != 0,
        Any::Double(number) => *number != 0.0,
        Any::List(list) => !list.values.is_empty(),
        Any::Map(map) => !map.values.is_empty(),
        Any::Bytes(bytes) => !bytes.is_empty(),
    }
}
