//! How streams stand, as it is shown.

use falaj_base::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::FeatureName;

/// What a reader is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It reads.
    Running,
    /// A server does not answer; it is asked again.
    Away,
    /// It stopped before a record that is no row.
    BadRecord,
    /// It stopped where records were removed before they were read.
    Gap,
    /// There is no such topic.
    Missing,
    /// It may not read: the server, a residency rule or the configuration says no.
    Refused,
}

impl State {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Away => "away",
            Self::BadRecord => "bad_record",
            Self::Gap => "gap",
            Self::Missing => "missing",
            Self::Refused => "refused",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Running, Self::Away, Self::BadRecord, Self::Gap, Self::Missing, Self::Refused]
            .into_iter()
            .find(|state| state.as_str() == text)
    }

    /// Whether it will not go on by itself.
    pub(super) fn is_stopped(self) -> bool {
        !matches!(self, Self::Running | Self::Away)
    }
}

/// How far a partition was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamStatus {
    /// The source.
    pub source: FeatureName,
    /// The configured stream, and what is read of it.
    pub stream: String,
    pub topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Absent if the topic itself could not be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<i64>,
    pub state: State,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// The offset of the next record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<i64>,
    /// How many records wait beyond, when it was last read.
    pub lag: i64,
    /// Records that became rows.
    pub rows: i64,
    /// Records that were put aside.
    pub bad: i64,
    /// Records without a value.
    pub passed: i64,
    /// Offsets that were gone before they were read.
    pub skipped: i64,
    /// When anything of this was last noted.
    pub updated_at: Timestamp,
}
