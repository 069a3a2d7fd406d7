//! What a run is.

use falaj_base::Result;
use falaj_mlflow::error::invalid;
use falaj_store::db::{FromValue, Value};
use serde_json::json;

use super::id::RunId;
use crate::dataset::Lineage;
use crate::experiment::{ExperimentId, Stage};

/// How far a run has come. The numbers are MLflow's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    Running = 1,
    Scheduled = 2,
    Finished = 3,
    Failed = 4,
    Killed = 5,
}

impl RunStatus {
    const ALL: [Self; 5] =
        [Self::Running, Self::Scheduled, Self::Finished, Self::Failed, Self::Killed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Scheduled => "SCHEDULED",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
        }
    }

    /// Reads a status by its name or its number.
    pub fn parse(text: &str) -> Result<Self> {
        let named = |status: &Self| status.as_str() == text || (*status as i64).to_string() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            let why = "allowed: RUNNING, SCHEDULED, FINISHED, FAILED, KILLED";
            invalid("status", &json!(text), why)
        })
    }
}

impl From<RunStatus> for Value {
    fn from(status: RunStatus) -> Self {
        Self::Int(status as i64)
    }
}

impl FromValue for RunStatus {
    fn from_value(value: &Value) -> Option<Self> {
        let number = i64::from_value(value)?;
        Self::ALL.into_iter().find(|status| *status as i64 == number)
    }
}

/// A run without what was logged to it.
#[derive(Clone, Debug)]
pub struct RunInfo {
    pub id: RunId,
    /// The experiment's number in the database.
    pub experiment: i64,
    pub experiment_id: ExperimentId,
    pub name: String,
    pub user_id: String,
    pub status: RunStatus,
    pub start_time: i64,
    pub end_time: Option<i64>,
    pub stage: Stage,
    pub artifact_uri: String,
}

/// What was logged to a run: the latest value of each metric, the parameters and the tags.
#[derive(Clone, Debug, Default)]
pub struct RunData {
    pub metrics: Vec<(String, crate::metric::Point)>,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
}

/// A run, whole.
#[derive(Clone, Debug)]
pub struct Run {
    pub info: RunInfo,
    pub data: RunData,
    pub lineage: Lineage,
}
