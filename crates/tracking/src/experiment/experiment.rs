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
        let number = text.parse().ok().filter(|number| *number >= 0);
        number.map(Self).ok_or_else(|| {
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

/// Which of the two a search wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ViewType {
    #[default]
    #[serde(alias = "1")]
    ActiveOnly,
    #[serde(alias = "2")]
    DeletedOnly,
    #[serde(alias = "3")]
    All,
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
