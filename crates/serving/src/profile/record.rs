//! What a profile says.

use falaj_base::Timestamp;
use falaj_inference::golden::BatchInvariance;
use falaj_inference::{Metadata, ValueInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a version can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Servable,
    /// It has an ONNX model, and no engine here runs it.
    Refused,
    /// It has no ONNX model.
    Absent,
}

/// One input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    pub name: String,
    pub datatype: String,
    /// -1 for a dimension that varies; absent if even their number is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<i64>>,
    /// What the columns stand for, where they are the probabilities of classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

impl Port {
    pub(crate) fn all_of(values: &[ValueInfo]) -> Vec<Self> {
        let port = |value: &ValueInfo| Self {
            name: value.name.clone(),
            datatype: value.data_type.name().to_owned(),
            shape: value.shape.clone(),
            labels: value.labels.as_ref().map(falaj_inference::Labels::texts).unwrap_or_default(),
        };
        values.iter().map(port).collect()
    }
}

/// Whether a row's answer depends on the rows beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Invariance {
    /// Every row is answered alike alone and in every batch tried: requests may share a run.
    Exact,
    /// Answers change with the batch in their last digits, by so much at most: requests may share
    /// a run.
    Rounding { output: String, by: f64 },
    /// Answers change with the batch, in so many rows of those tried and by so much at most.
    Differs { output: String, rows: usize, of: usize, by: f64 },
    /// An output has no row for each row of the inputs: requests cannot share a run.
    NotByRow { output: String },
    /// It could not be tried, and why: requests do not share a run.
    Unknown { why: String },
}

impl Invariance {
    /// Whether requests may share a run.
    #[must_use]
    pub fn allows_sharing(&self) -> bool {
        matches!(self, Self::Exact | Self::Rounding { .. })
    }
}

impl From<BatchInvariance> for Invariance {
    fn from(found: BatchInvariance) -> Self {
        match found {
            BatchInvariance::Exact => Self::Exact,
            BatchInvariance::Rounding { output, by } => Self::Rounding { output, by },
            BatchInvariance::Differs { output, rows, of, by } => {
                // JSON has no infinity; a changed label is as far as it gets.
                let by = if by.is_finite() { by } else { f64::MAX };
                Self::Differs { output, rows, of, by }
            }
            BatchInvariance::NotByRow { output } => Self::NotByRow { output },
        }
    }
}

/// What was found out about a version when it was registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    pub state: State,
    /// Why it is refused, or where no model was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest over the version's files that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The model's file, from the version's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its size, with the files beside it.
    pub bytes: u64,
    /// The engine that computed the golden pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub inputs: Vec<Port>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub outputs: Vec<Port>,
    /// The columns of a frame in the model's order, as its signature names them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub columns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Invariance>,
    /// Whether a golden pair is kept, and what its inputs are: the version's `example`, or
    /// `made_up` ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub golden: Option<String>,
    pub made_at: Timestamp,
}

impl Profile {
    pub(crate) fn without_model(state: State, reason: String, made_at: Timestamp) -> Self {
        Self {
            state,
            reason: Some(reason),
            digest: None,
            file: None,
            bytes: 0,
            engine: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            columns: Vec::new(),
            batch: None,
            golden: None,
            made_at,
        }
    }

    pub(crate) fn describe(&mut self, metadata: &Metadata) {
        self.inputs = Port::all_of(&metadata.inputs);
        self.outputs = Port::all_of(&metadata.outputs);
    }

    /// Whether requests may share a run.
    pub(crate) fn batches(&self) -> bool {
        self.batch.as_ref().is_some_and(Invariance::allows_sharing)
    }
}
