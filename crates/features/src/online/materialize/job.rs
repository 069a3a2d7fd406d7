//! What is asked for, and how far it is.

use falaj_base::{ProjectId, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use crate::definition::VersionId;
use crate::name::FeatureName;

crate::id::prefixed! {
    /// The id of a job that brings views into the online store.
    JobId = "fmat_"
}

/// How far a job is, or one of its views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobState {
    Waiting,
    Running,
    Done,
    Failed,
    Cancelled,
}

impl JobState {
    const ALL: [Self; 5] =
        [Self::Waiting, Self::Running, Self::Done, Self::Failed, Self::Cancelled];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing more becomes of it.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A job that brings views into the online store of one server, or the one that servers share.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Job {
    pub id: JobId,
    pub state: JobState,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub views: Vec<JobView>,
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Grows with every job: rows that a later job brings stay.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) number: i64,
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) project: ProjectId,
    /// The store that it brings rows into.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) store: String,
    /// How often it was begun since it last came any further.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) attempts: i64,
}

/// A view of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct JobView {
    pub view: FeatureName,
    pub version: i64,
    pub state: JobState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Events from here on; from the first, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Events up to here.
    pub to: Timestamp,
    #[serde(flatten)]
    pub progress: Progress,
    /// Which of the job's views it is.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) place: i64,
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) id: VersionId,
    /// What its rows are kept under.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) rows_of: VersionId,
    /// The SHA-256 of what was found to be read: only over the same it goes on where it stopped.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) plan: Option<String>,
}

/// How far a view is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Progress {
    /// Rows of the source that were read.
    pub read: u64,
    /// Rows that there are to read, as far as is known.
    pub total: u64,
    /// Rows that were within the window.
    pub rows: u64,
    /// Those of them that were the latest of their entity when they came.
    pub placed: u64,
    /// Which file is being read, and how many there are.
    pub file: u64,
    pub files: u64,
}
