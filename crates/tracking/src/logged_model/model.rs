//! What a logged model is.

use std::collections::HashMap;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused};
use falaj_store::db::{FromValue, Value};
use serde_json::{Value as Json, json};

use super::id::ModelId;
use crate::experiment::{ExperimentId, Stage};
use crate::run::RunId;

/// Whether its files are there. The numbers are MLflow's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStatus {
    Pending = 1,
    Ready = 2,
    Failed = 3,
}

impl ModelStatus {
    const ALL: [Self; 3] = [Self::Pending, Self::Ready, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "LOGGED_MODEL_PENDING",
            Self::Ready => "LOGGED_MODEL_READY",
            Self::Failed => "LOGGED_MODEL_UPLOAD_FAILED",
        }
    }

    /// The short name that filters use.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Ready => "READY",
            Self::Failed => "FAILED",
        }
    }

    /// Reads a status by its name or its number.
    pub fn parse(status: &Json) -> Result<Self> {
        let text = status.as_str().map_or_else(|| status.to_string(), str::to_owned);
        let named = |one: &Self| one.as_str() == text || (*one as i64).to_string() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            let why =
                "allowed: LOGGED_MODEL_PENDING, LOGGED_MODEL_READY, LOGGED_MODEL_UPLOAD_FAILED";
            invalid("status", &json!(text), why)
        })
    }
}

impl From<ModelStatus> for Value {
    fn from(status: ModelStatus) -> Self {
        Self::Int(status as i64)
    }
}

impl FromValue for ModelStatus {
    fn from_value(value: &Value) -> Option<Self> {
        let number = i64::from_value(value)?;
        Self::ALL.into_iter().find(|status| *status as i64 == number)
    }
}

/// A metric that describes the model, on a dataset if it says so.
#[derive(Clone, Debug)]
pub struct ModelMetric {
    pub key: String,
    pub value: f64,
    pub timestamp: i64,
    pub step: i64,
    pub run: RunId,
    pub dataset_name: Option<String>,
    pub dataset_digest: Option<String>,
}

#[derive(Clone, Debug)]
pub struct LoggedModel {
    pub id: ModelId,
    /// The experiment's number in the database.
    pub experiment: i64,
    pub experiment_id: ExperimentId,
    pub name: String,
    pub model_type: String,
    pub source_run: Option<String>,
    pub status: ModelStatus,
    pub stage: Stage,
    pub created_at: i64,
    pub updated_at: i64,
    pub artifact_uri: String,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
    pub metrics: Vec<ModelMetric>,
}

/// Refuses to change a parameter: one that is there, or is given twice, has one value. Sending it
/// again is no change: a reply may have been lost.
pub(super) fn check_params(had: &[(String, String)], new: &[(String, String)]) -> Result<()> {
    let mut known: HashMap<&str, &str> = HashMap::new();
    for (key, value) in had.iter().chain(new) {
        let old = *known.entry(key).or_insert(value);
        if old != value {
            let short = |text: &str| text.chars().take(250).collect::<String>();
            return Err(refused(format!(
                "Changing param values is not allowed. Param with key='{key}' was already logged \
                 with value='{}'. Attempted logging new value '{}'.",
                short(old),
                short(value)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_one_value() {
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let had = pairs(&[("a", "1"), ("empty", "")]);
        for (new, fine) in [
            (pairs(&[]), true),
            (pairs(&[("b", "1")]), true),
            (pairs(&[("a", "1"), ("empty", "")]), true),
            (pairs(&[("a", "2")]), false),
            (pairs(&[("empty", "x")]), false),
            (pairs(&[("a", "")]), false),
            (pairs(&[("b", "1"), ("b", "1")]), true),
            (pairs(&[("b", "1"), ("b", "2")]), false),
        ] {
            assert_eq!(check_params(&had, &new).is_ok(), fine, "{new:?}");
        }
        let long = "é".repeat(1000);
        let said = check_params(&had, &pairs(&[("a", &long)])).unwrap_err().to_string();
        assert!(said.contains("key='a'") && said.chars().count() < 500, "{said}");
    }
}
