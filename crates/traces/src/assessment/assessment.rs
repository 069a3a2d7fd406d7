//! What an assessment is.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, code};
use falaj_mlflow::error::{invalid, refused};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::TracesConfig;

/// The longest name, as in MLflow.
const MAX_NAME: usize = 250;

/// Who says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub source_type: String,
    pub source_id: Option<String>,
}

/// Why there is no feedback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Failure {
    #[serde(alias = "errorCode", skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(alias = "errorMessage", skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(alias = "stackTrace", skip_serializing_if = "Option::is_none")]
    pub stack_trace: Option<String>,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// How it was; or why that could not be told.
    Feedback { value: Value, error: Option<Failure> },
    /// How it should have been.
    Expectation { value: Value },
    /// Which issue it is a case of; the assessment's name is the issue's id.
    Issue { name: String },
}

/// An assessment of a trace. This is also how it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assessment {
    pub id: String,
    pub name: String,
    pub source: Source,
    pub said: Said,
    pub span: Option<String>,
    pub rationale: Option<String>,
    pub metadata: BTreeMap<String, String>,
    /// In milliseconds.
    pub created_at: i64,
    pub updated_at: i64,
    /// Which one it takes the place of.
    pub overrides: Option<String>,
    /// Whether no other has taken its place.
    pub valid: bool,
}

/// What is to be different about one.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub name: Option<String>,
    pub said: Option<Said>,
    pub rationale: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Assessment {
    #[must_use]
    pub fn new_id() -> String {
        format!("a-{}", uuid::Uuid::now_v7().simple())
    }

    /// Refuses what is nameless, or larger than is allowed.
    pub fn check(&self, limits: &TracesConfig) -> Result<()> {
        if self.name.is_empty() || self.name.chars().count() > MAX_NAME {
            let why = format!("a name has 1 to {MAX_NAME} characters");
            return Err(invalid("assessment.assessment_name", &json!(self.name), &why));
        }
        let most = limits.max_assessment_size.as_usize();
        let size = serde_json::to_string(self).map_err(Error::internal)?.len();
        if size > most {
            let text = format!(
                "the assessment has {size} bytes; at most {most} are allowed \
                 (`traces.max_assessment_size`)"
            );
            return Err(Error::new(&code::INVALID_INPUT, text).at("assessment"));
        }
        Ok(())
    }

    /// Changes what may change: feedback stays feedback.
    pub fn apply(&mut self, change: Change, now: i64) -> Result<()> {
        if let Some(said) = change.said {
            match (&self.said, &said) {
                (Said::Feedback { .. }, Said::Feedback { .. })
                | (Said::Expectation { .. }, Said::Expectation { .. }) => self.said = said,
                (_, Said::Expectation { .. }) => {
                    return Err(refused(
                        "Cannot update expectation value on a Feedback assessment.",
                    ));
                }
                _ => {
                    return Err(refused(
                        "Cannot update feedback value on an Expectation assessment.",
                    ));
                }
            }
        }
        if let Some(name) = change.name {
            self.name = name;
        }
        if change.rationale.is_some() && !matches!(self.said, Said::Expectation { .. }) {
            self.rationale = change.rationale;
        }
        self.metadata.extend(change.metadata.unwrap_or_default());
        self.updated_at = now;
        Ok(())
    }

    /// What a filter compares with: a text as it is, anything else as JSON.
    #[must_use]
    pub fn text(&self) -> String {
        match self.value() {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        }
    }

    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        self.value().map(Value::to_string).unwrap_or_default()
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        self.value().and_then(Value::as_f64)
    }

    /// The number that it counts as in a mean: yes is one and no is nothing.
    #[must_use]
    pub fn weight(&self) -> Option<f64> {
        match self.value()? {
            Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Value::Number(number) => number.as_f64(),
            Value::String(text) if text.trim().eq_ignore_ascii_case("yes") => Some(1.0),
            Value::String(text) if text.trim().eq_ignore_ascii_case("no") => Some(0.0),
            _ => None,
        }
    }

    fn value(&self) -> Option<&Value> {
        match &self.said {
            Said::Feedback { value, .. } | Said::Expectation { value } => Some(value),
            Said::Issue { .. } => None,
        }
    }
}
