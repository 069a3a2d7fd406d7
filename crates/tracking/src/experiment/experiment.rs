//! What an experiment is.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};
use falaj_mlflow::error::refused;
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of an experiment within its project, which clients write as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExperimentId(pub i64);

impl ExperimentId {
    /// The experiment that every project has from the start.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for ExperimentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ExperimentId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        text.parse().ok().map(Self).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            refused(format!("Invalid experiment ID: '{shown}'. Experiment ID must be a number."))
                .at("experiment_id")
        })
    }
}

impl From<ExperimentId> for Value {
    fn from(id: ExperimentId) -> Self {
        Self::Int(id.0)
    }
}

impl FromValue for ExperimentId {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).map(Self)
    }
}

/// Whether something is there or in the bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Active,
    Deleted,
}

impl Stage {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deleted => "deleted",
        }
    }
}

impl From<Stage> for Value {
    fn from(stage: Stage) -> Self {
        Self::Text(stage.as_str().to_owned())
    }
}

impl FromValue for Stage {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) if text == "active" => Some(Self::Active),
            Value::Text(text) if text == "deleted" => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// Which of the two a search wants, by its name or its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", try_from = "serde_json::Value")]
pub enum ViewType {
    #[default]
    ActiveOnly,
    DeletedOnly,
    All,
}

impl TryFrom<serde_json::Value> for ViewType {
    type Error = String;
    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match text.as_str() {
            "ACTIVE_ONLY" | "1" => Ok(Self::ActiveOnly),
            "DELETED_ONLY" | "2" => Ok(Self::DeletedOnly),
            "ALL" | "3" => Ok(Self::All),
            _ => Err("allowed: ACTIVE_ONLY, DELETED_ONLY, ALL".to_owned()),
        }
    }
}

impl ViewType {
    #[must_use]
    pub fn shows(self, stage: Stage) -> bool {
        match self {
            Self::ActiveOnly => stage == Stage::Active,
            Self::DeletedOnly => stage == Stage::Deleted,
            Self::All => true,
        }
    }
}

/// A named collection of runs.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its number in the database, which other tables refer to.
    pub no: i64,
    pub id: ExperimentId,
    pub name: String,
    pub artifact_location: String,
    pub stage: Stage,
    pub created_at: i64,
    pub updated_at: i64,
    pub tags: Vec<(String, String)>,
}
