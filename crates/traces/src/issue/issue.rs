//! What an issue is.

use falaj_base::{Error, Result, code};
use falaj_mlflow::error::{invalid, too_long};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::config::TracesConfig;

/// The longest name, and the longest word for who made it, as in MLflow.
const MAX_NAME: usize = 250;
const MAX_CREATOR: usize = 255;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    #[default]
    Pending,
    Rejected,
    Resolved,
}

/// How bad it is, from the least on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    NotAnIssue,
    Low,
    Medium,
    High,
}

impl Status {
    const ALL: [Self; 3] = [Self::Pending, Self::Rejected, Self::Resolved];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Rejected => "rejected",
            Self::Resolved => "resolved",
        }
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| {
            let why = format!("one of {}", Self::ALL.map(Self::as_str).join(", "));
            invalid("status", &json!(text), &why)
        })
    }
}

impl Severity {
    const ALL: [Self; 4] = [Self::NotAnIssue, Self::Low, Self::Medium, Self::High];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotAnIssue => "not_an_issue",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| {
            let why = format!("one of {}", Self::ALL.map(Self::as_str).join(", "));
            invalid("severity", &json!(text), &why)
        })
    }
}

/// An issue. This is also how it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Issue {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) status: Status,
    pub(crate) severity: Option<Severity>,
    pub(crate) root_causes: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The run that found it.
    pub(crate) source_run: Option<String>,
    pub(crate) created_by: Option<String>,
    /// In milliseconds.
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
}

/// What is to be different about one.
#[derive(Clone, Debug, Default)]
pub(crate) struct IssueChange {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) severity: Option<Severity>,
}

impl Issue {
    pub(super) fn new_id() -> String {
        format!("iss-{}", Uuid::now_v7().simple())
    }

    pub(super) fn apply(&mut self, change: IssueChange, now: i64) {
        if let Some(name) = change.name {
            self.name = name;
        }
        if let Some(description) = change.description {
            self.description = description;
        }
        self.status = change.status.unwrap_or(self.status);
        self.severity = change.severity.or(self.severity);
        self.updated_at = now;
    }

    /// Refuses what has no name, or is larger than is allowed.
    pub(super) fn check(&self, limits: &TracesConfig) -> Result<()> {
        if self.name.chars().count() > MAX_NAME {
            return Err(too_long("name", MAX_NAME));
        }
        if self.created_by.as_ref().is_some_and(|by| by.chars().count() > MAX_CREATOR) {
            return Err(too_long("created_by", MAX_CREATOR));
        }
        let most = limits.max_issue_size.as_usize();
        let size = serde_json::to_string(self).map_err(Error::internal)?.len();
        if size > most {
            let text = format!(
                "the issue has {size} bytes; at most {most} are allowed (`traces.max_issue_size`)"
            );
            return Err(Error::new(&code::INVALID_INPUT, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_are_kept() {
        for status in Status::ALL {
            assert_eq!(Status::read(status.as_str()).unwrap(), status);
            assert_eq!(json!(status), status.as_str());
        }
        for severity in Severity::ALL {
            assert_eq!(Severity::read(severity.as_str()).unwrap(), severity);
            assert_eq!(json!(severity), severity.as_str());
        }
        for bad in ["", "Pending", "high ", "none"] {
            assert!(Status::read(bad).is_err() && Severity::read(bad).is_err(), "{bad}");
        }
        assert!(Severity::High > Severity::Medium && Some(Severity::NotAnIssue) > None);
    }
}
