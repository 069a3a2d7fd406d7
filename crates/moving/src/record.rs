//! What a tracking store holds, whatever it keeps it in. Serialised, these are what a server takes
//! when it imports. Times are in milliseconds since 1970.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

pub type Pairs = Vec<(String, String)>;

/// Bytes that a store keeps as a text.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Whether something is there or in the bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    #[default]
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

    #[must_use]
    pub fn read(text: &str) -> Self {
        if text.eq_ignore_ascii_case("deleted") { Self::Deleted } else { Self::Active }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Experiment {
    pub id: String,
    pub name: String,
    pub stage: Stage,
    pub created_at: i64,
    pub updated_at: i64,
    pub tags: Pairs,
    /// Where it says its files go.
    #[serde(skip)]
    pub artifact_location: String,
}

/// A dataset that went into a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dataset {
    pub name: String,
    pub digest: String,
    pub source_type: String,
    pub source: String,
    pub schema: Option<String>,
    pub profile: Option<String>,
    pub tags: Pairs,
}

/// A run, without its points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Run {
    pub id: String,
    pub experiment: String,
    pub name: String,
    pub user_id: String,
    pub status: String,
    pub start_time: i64,
    pub end_time: Option<i64>,
    pub stage: Stage,
    pub deleted_at: Option<i64>,
    /// Set if its files stay where they are.
    #[serde(rename = "artifact_uri", skip_serializing_if = "Option::is_none")]
    pub stays_at: Option<String>,
    pub params: Pairs,
    pub tags: Pairs,
    pub datasets: Vec<Dataset>,
    /// Where its files are.
    #[serde(skip)]
    pub artifact_uri: String,
}

/// One value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub timestamp: i64,
    pub step: i64,
    pub value: f64,
}

/// Some points of one metric of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub run: String,
    pub key: String,
    #[serde(serialize_with = "packed")]
    pub points: Vec<Point>,
}

/// 24 bytes for each point, as base64: exact, and a third of what the numbers take as text.
fn packed<S: Serializer>(points: &[Point], to: S) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::with_capacity(points.len() * 24);
    for point in points {
        bytes.extend_from_slice(&point.timestamp.to_le_bytes());
        bytes.extend_from_slice(&point.step.to_le_bytes());
        bytes.extend_from_slice(&point.value.to_le_bytes());
    }
    to.serialize_str(&STANDARD.encode(bytes))
}

/// A metric that describes a logged model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelMetric {
    pub key: String,
    #[serde(serialize_with = "exact")]
    pub value: f64,
    pub timestamp: i64,
    pub step: i64,
    pub run: String,
    pub dataset_name: Option<String>,
    pub dataset_digest: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn exact<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LoggedModel {
    pub id: String,
    pub experiment: String,
    pub name: String,
    pub model_type: String,
    pub source_run: Option<String>,
    pub status: i64,
    pub stage: Stage,
    pub created_at: i64,
    pub updated_at: i64,
    /// Set if its files stay where they are.
    #[serde(rename = "artifact_uri", skip_serializing_if = "Option::is_none")]
    pub stays_at: Option<String>,
    pub params: Pairs,
    pub tags: Pairs,
    pub metrics: Vec<ModelMetric>,
    /// The runs it went into.
    pub inputs: Vec<String>,
    /// The runs it came out of, and at which step.
    pub outputs: Vec<(String, i64)>,
    /// Where its files are.
    #[serde(skip)]
    pub artifact_uri: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Version {
    pub version: i64,
    pub description: Option<String>,
    pub stage: String,
    pub source: String,
    /// Where its files are.
    pub location: String,
    pub run_id: Option<String>,
    pub run_link: String,
    pub logged_model: Option<String>,
    pub created_by: String,
    pub created_at: i64,
    pub updated_at: i64,
    pub tags: Pairs,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegisteredModel {
    pub name: String,
    pub description: String,
    pub created_at: i64,
    pub updated_at: i64,
    /// The greatest number that a version ever had, deleted ones included.
    pub last_version: i64,
    pub tags: Pairs,
    pub aliases: Vec<(String, i64)>,
    pub versions: Vec<Version>,
}

/// What somebody said of a trace. Values are JSON, as stores keep them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    pub id: String,
    pub name: String,
    /// `feedback`, `expectation` or `issue`.
    pub kind: String,
    pub value: String,
    pub error: Option<String>,
    pub source_type: String,
    pub source_id: Option<String>,
    pub span: Option<String>,
    pub rationale: Option<String>,
    pub metadata: Option<String>,
    pub overrides: Option<String>,
    pub valid: bool,
    pub created_at: i64,
    pub updated_at: i64,
}

/// A trace, without its spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub id: String,
    pub experiment: String,
    pub timestamp: i64,
    pub duration: Option<i64>,
    pub state: String,
    pub client_request_id: Option<String>,
    pub request_preview: Option<String>,
    pub response_preview: Option<String>,
    pub tags: Pairs,
    pub metadata: Pairs,
    pub assessments: Vec<Assessment>,
}
