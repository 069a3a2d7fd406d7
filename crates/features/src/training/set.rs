//! What a training set is.

use falaj_base::{BlobId, ProjectId, Resource, TenantId, Timestamp};
use falaj_governance::tenancy::Project;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::TrainingSetId;
use super::spec::{Chosen, Manifest, Work};

/// How far a training set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Waiting,
    Ready,
    Failed,
    /// It had rows of an entity that was erased: its file is gone.
    Erased,
}

impl State {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Erased => "erased",
        }
    }
}

/// A training set: a file that never changes, and what it was made of.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TrainingSet {
    pub id: TrainingSetId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub state: State,
    /// Why it could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub features: Vec<Chosen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Bytes of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The SHA-256 of the manifest: equal for equal sets made of equal things.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Manifest>,
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When its file went, because it had rows of an entity that was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<Timestamp>,
    /// The set that has the other rows of one that was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor: Option<TrainingSetId>,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) blob: Option<BlobId>,
}

/// A training set that waits to be made.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: TrainingSetId,
    pub(crate) project: ProjectId,
    pub(crate) tenant: TenantId,
    pub(crate) work: Work,
    pub(crate) moments: BlobId,
    pub(crate) attempts: i64,
}

/// What a training set is authorised on, there or not.
pub(crate) fn resource(project: &Project, id: TrainingSetId, absent: bool) -> Resource {
    let resource = if absent {
        Resource::absent("training-set", id, project.scope())
    } else {
        Resource::new("training-set", id, project.scope())
    };
    resource.with(project.attributes())
}
