//! What the history says.

use falaj_base::Timestamp;
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::Serialize;

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An alias, from version to version.
    Alias,
    /// A version, from stage to stage.
    Stage,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Alias => "alias",
            Self::Stage => "stage",
        }
    }
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Self {
        Self::Text(kind.as_str().to_owned())
    }
}

impl FromValue for Kind {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => {
                [Self::Alias, Self::Stage].into_iter().find(|kind| kind.as_str() == text)
            }
            _ => None,
        }
    }
}

/// One move, as it is made.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) kind: Kind,
    /// The alias, or the version.
    pub(crate) subject: String,
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
    /// What an alias was pointed at: see `Checked::content`. Unknown if it was not checked.
    pub(crate) content: Option<String>,
}

impl Move {
    pub(crate) fn new(kind: Kind, subject: &str, old: Option<&str>, new: Option<&str>) -> Self {
        let (old, new) = (old.map(str::to_owned), new.map(str::to_owned));
        Self { kind, subject: subject.to_owned(), old, new, content: None }
    }

    pub(crate) fn with(self, content: Option<&str>) -> Self {
        Self { content: content.map(str::to_owned), ..self }
    }
}

/// One move, as it is read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// Counts the moves of one model from 1.
    pub number: i64,
    pub at: Timestamp,
    pub kind: Kind,
    /// The alias that was moved, or the version whose stage changed.
    pub subject: String,
    /// The version or stage before; absent for an alias that was new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The version or stage after; absent for an alias that was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The id of who did it, and the name they had then.
    pub by: String,
    pub by_name: String,
    /// The request, as in the audit log.
    pub request: String,
}
