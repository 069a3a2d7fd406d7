//! What a trace is.

use std::collections::BTreeMap;

use falaj_base::{ProjectId, Result};
use falaj_mlflow::error::invalid;
use falaj_store::db::{FromValue, Value};
use falaj_tracking::ExperimentId;
use serde_json::json;
use uuid::Uuid;

use super::id::TraceId;

/// How it went. The numbers are MLflow's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Unspecified = 0,
    Ok = 1,
    Error = 2,
    InProgress = 3,
}

impl State {
    const ALL: [Self; 4] = [Self::Unspecified, Self::Ok, Self::Error, Self::InProgress];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "STATE_UNSPECIFIED",
            Self::Ok => "OK",
            Self::Error => "ERROR",
            Self::InProgress => "IN_PROGRESS",
        }
    }

    /// The same in the words of the second version of the protocol.
    #[must_use]
    pub const fn status(self) -> &'static str {
        match self {
            Self::Unspecified => "TRACE_STATUS_UNSPECIFIED",
            other => other.as_str(),
        }
    }

    /// Reads a state by its name, in either version, or its number.
    pub fn parse(parameter: &str, state: &serde_json::Value) -> Result<Self> {
        let text = state.as_str().map_or_else(|| state.to_string(), str::to_owned);
        let named = |one: &Self| {
            one.as_str() == text || one.status() == text || (*one as i64).to_string() == text
        };
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            let why = "allowed: OK, ERROR, IN_PROGRESS, STATE_UNSPECIFIED";
            invalid(parameter, &json!(text), why)
        })
    }

    /// Whether the end of the trace is still to come.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::InProgress | Self::Unspecified)
    }
}

impl From<State> for Value {
    fn from(state: State) -> Self {
        Self::Int(state as i64)
    }
}

impl FromValue for State {
    fn from_value(value: &Value) -> Option<Self> {
        let number = i64::from_value(value)?;
        Self::ALL.into_iter().find(|state| *state as i64 == number)
    }
}

/// Tags that are MLflow's own.
pub(crate) const NAME_TAG: &str = "mlflow.traceName";
pub(crate) const ARTIFACTS_TAG: &str = "mlflow.artifactLocation";
pub(crate) const SPANS_TAG: &str = "mlflow.trace.spansLocation";
/// Says that spans are kept beside the trace, and not in a file of it.
pub(crate) const SPANS_HERE: &str = "TRACKING_STORE";

/// Metadata that is MLflow's own.
pub(crate) const FINAL: &str = "mlflow.trace.infoFinalized";
pub(crate) const TOKENS: &str = "mlflow.trace.tokenUsage";
pub(crate) const COST: &str = "mlflow.trace.cost";
pub(crate) const SESSION: &str = "mlflow.trace.session";
pub(crate) const USER: &str = "mlflow.trace.user";
pub(crate) const SIZE_STATS: &str = "mlflow.trace.sizeStats";
pub(crate) const SOURCE_RUN: &str = "mlflow.sourceRun";

pub(crate) type Pairs = BTreeMap<String, String>;

/// One trace, without its spans.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its number in the database.
    pub no: Uuid,
    pub project: ProjectId,
    pub id: TraceId,
    /// The experiment's number in the database.
    pub experiment: i64,
    pub experiment_id: ExperimentId,
    /// When it began, in milliseconds, and how long it took.
    pub timestamp: i64,
    pub duration: Option<i64>,
    pub state: State,
    /// How many spans are stored, and how much they take.
    pub spans: i64,
    pub size: i64,
    pub client_request_id: Option<String>,
    pub request_preview: Option<String>,
    pub response_preview: Option<String>,
    pub tags: Pairs,
    pub metadata: Pairs,
}

impl Trace {
    /// Whether its client has said all it has to say about the whole of it; spans that come later
    /// no longer change that.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.metadata.contains_key(FINAL)
    }

    /// Whether the spans are all there, as far as its client told how many there are.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let stats = self.metadata.get(SIZE_STATS);
        let stats = stats.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let announced = stats.and_then(|stats| stats["num_spans"].as_i64()).unwrap_or(0);
        self.spans > 0 && self.spans >= announced
    }
}
