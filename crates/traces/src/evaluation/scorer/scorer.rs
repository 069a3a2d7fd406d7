//! What a scorer is.

use falaj_base::{Error, Result, code};
use falaj_mlflow::error::{invalid, refused, too_long};
use serde_json::{Value, json};

use crate::config::TracesConfig;

/// The longest name, as in MLflow.
const MAX_NAME: usize = 256;

/// One version of a scorer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) scorer_id: String,
    pub(crate) name: String,
    pub(crate) number: i64,
    /// In milliseconds.
    pub(crate) created_at: i64,
    /// How to make it again, as JSON. Only clients read it.
    pub(crate) serialized: String,
}

/// A scorer to be registered.
#[derive(Clone, Debug)]
pub(super) struct NewScorer {
    pub(super) name: String,
    pub(super) serialized: String,
}

impl NewScorer {
    pub(super) fn read(name: String, serialized: String, limits: &TracesConfig) -> Result<Self> {
        check_name(&name)?;
        let most = limits.max_scorer_size.as_usize();
        if serialized.len() > most {
            let text = format!(
                "the scorer has {} bytes; at most {most} are allowed (`traces.max_scorer_size`)",
                serialized.len()
            );
            return Err(Error::new(&code::TOO_LARGE, text).at("serialized_scorer"));
        }
        let value: Value = serde_json::from_str(&serialized)
            .map_err(|_| refused("serialized_scorer must be valid JSON").at("serialized_scorer"))?;
        if !value.is_object() {
            let why = "a serialized scorer is a JSON object";
            return Err(invalid("serialized_scorer", &value, why));
        }
        if holds_code(&value) {
            return Err(refused(
                "a scorer that holds code (one made with the @scorer decorator) is not taken: \
                 whoever loads it would run that code; keep it where code is kept, and import it",
            )
            .at("serialized_scorer"));
        }
        Ok(Self { name, serialized })
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.chars().count() > MAX_NAME {
        return Err(too_long("name", MAX_NAME));
    }
    if name.trim().is_empty() {
        let text = "Scorer name cannot be empty or contain only whitespace.";
        return Err(refused(text).at("name"));
    }
    if name.chars().any(char::is_control) {
        return Err(invalid("name", &json!(name), "a name has no control characters"));
    }
    Ok(())
}

/// Whether there is code in it, at any depth: clients run what they find under this name.
fn holds_code(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, member)| {
            (name == "call_source" && !member.is_null()) || holds_code(member)
        }),
        Value::Array(items) => items.iter().any(holds_code),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_scorer_is_refused() {
        let limits = TracesConfig::default();
        let read = |name: &str, text: &str| NewScorer::read(name.into(), text.into(), &limits);
        assert!(read("safe", r#"{"name": "safe", "call_source": null}"#).is_ok());
        for (name, text) in [
            ("", "{}"),
            ("  ", "{}"),
            ("a\0", "{}"),
            ("x", ""),
            ("x", "[]"),
            ("x", "{"),
            ("x", r#"{"call_source": "import os"}"#),
            ("x", r#"{"ensemble": [{"deep": {"call_source": ""}}]}"#),
        ] {
            assert!(read(name, text).is_err(), "{name:?} {text}");
        }
        let large = format!("{{\"a\": \"{}\"}}", "x".repeat(limits.max_scorer_size.as_usize()));
        assert_eq!(read("x", &large).unwrap_err().code(), &code::TOO_LARGE);
        assert!(read(&"x".repeat(257), "{}").is_err());
    }
}
