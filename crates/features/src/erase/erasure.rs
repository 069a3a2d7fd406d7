//! What was asked for, and what became of it.

use falaj_base::{ProjectId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::FeatureName;

crate::id::prefixed! {
    /// The id of an erasure.
    ErasureId = "fers_"
}

/// How far an erasure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErasureState {
    Running,
    Done,
}

/// The rows of one entity, erased or about to be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Erasure {
    pub id: ErasureId,
    pub entity: FeatureName,
    pub state: ErasureState,
    #[serde(flatten)]
    pub report: Report,
    /// Rows that were known by then are gone.
    pub at: Timestamp,
    pub created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) project: ProjectId,
    /// The values of its join keys; forgotten after a while.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) keys: Option<Map<String, Value>>,
}

/// What became of an erasure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Report {
    /// The views that have the entity.
    pub views: Vec<FeatureName>,
    /// Rows that were taken out of the online store of the server that was asked.
    pub online: u64,
    /// Rows that were taken out of the log of pushes.
    pub log: u64,
    /// Rows that were taken out of files of pushes.
    pub files: u64,
    /// Sources of those views that are not ours to change: what is there comes back when it is
    /// materialised.
    pub sources: Vec<FeatureName>,
    /// Records put aside of streams that were the entity's, or did not tell whose they were: their
    /// content is gone.
    pub quarantined: u64,
    /// Statistics of views that were dropped, since they may have told of its values.
    pub statistics: u64,
    /// Training sets that had the entity among their moments. Their files are gone.
    pub training_sets: Vec<String>,
    /// Training sets that have the other rows of those.
    pub successors: Vec<String>,
    /// Datasets whose latest version had a file of such a set, and that have another without its rows
    /// now.
    pub datasets: Vec<String>,
}
