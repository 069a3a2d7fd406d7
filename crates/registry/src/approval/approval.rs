//! What an approval is.

use std::fmt;

use falaj_base::{Error, Timestamp};
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names a request for approval; newer ones sort after older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId(Uuid);

impl ApprovalId {
    pub(super) fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// After every id there is.
    pub(super) const LAST: Self = Self(Uuid::max());

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self).filter(|id| id.to_string() == text)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl Serialize for ApprovalId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl From<ApprovalId> for Value {
    fn from(id: ApprovalId) -> Self {
        Self::Blob(id.0.as_bytes().to_vec())
    }
}

impl FromValue for ApprovalId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Uuid::from_slice(bytes).ok().map(Self),
            _ => None,
        }
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Open,
    Approved,
    Rejected,
    Withdrawn,
    /// The version was promoted with it.
    Used,
}

impl Status {
    const ALL: [Self; 5] =
        [Self::Open, Self::Approved, Self::Rejected, Self::Withdrawn, Self::Used];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Withdrawn => "withdrawn",
            Self::Used => "used",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let allowed = "open, approved, rejected, withdrawn or used";
            Error::invalid("status", text, allowed)
        })
    }
}

impl From<Status> for Value {
    fn from(status: Status) -> Self {
        Self::Text(status.as_str().to_owned())
    }
}

impl FromValue for Status {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::parse(text).ok(),
            _ => None,
        }
    }
}

/// What can be done to an open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Approve,
    Reject,
    /// By whoever asked.
    Withdraw,
}

impl Verb {
    pub(super) const fn status(self) -> Status {
        match self {
            Self::Approve => Status::Approved,
            Self::Reject => Status::Rejected,
            Self::Withdraw => Status::Withdrawn,
        }
    }

    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::Approve => "model-approval.approved",
            Self::Reject => "model-approval.rejected",
            Self::Withdraw => "model-approval.withdrawn",
        }
    }
}

/// A request, as it is made.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApproval {
    /// The model.
    pub model: String,
    pub version: i64,
    /// Where it is to go: an alias, or a stage.
    #[serde(default)]
    pub alias: Option<String>,
    #[serde(default)]
    pub stage: Option<String>,
    /// What the other one should know.
    #[serde(default)]
    pub note: String,
}

/// A request and what became of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Approval {
    #[schemars(with = "String")]
    pub id: ApprovalId,
    pub model: String,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    pub status: Status,
    /// The version is not any more what was asked about: it counts no longer.
    pub stale: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The id of who asked, and the name they had then.
    pub requested_by: String,
    pub requested_by_name: String,
    pub requested_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// What the other one said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
