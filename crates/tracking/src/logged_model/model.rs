//! What a logged model is.

use falaj_base::Result;
use falaj_mlflow::error::invalid;
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
