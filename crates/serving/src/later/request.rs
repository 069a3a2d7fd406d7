//! What a request is while it waits, runs and has ended.

use falaj_base::error::ALL_CODES;
use falaj_base::{BlobId, Error, PrincipalId, Result, Timestamp, code};
use falaj_registry::webhook::Callback;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits for its turn, or for another attempt.
    Queued,
    Running,
    /// The result is there.
    Done,
    /// There will be no result; `error` says why.
    Failed,
    Cancelled,
}

impl State {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let all = [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Cancelled];
        let found = all.into_iter().find(|state| state.text() == text);
        found.ok_or_else(|| Error::internal(format!("a request in the state {text}")))
    }

    /// Whether something is still to come.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

/// Why a request failed: what asking at once would have been told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Why {
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The longest message that is kept of an error.
const MAX_MESSAGE: usize = 2000;

impl From<&Error> for Why {
    fn from(error: &Error) -> Self {
        // PostgreSQL keeps no text with a NUL.
        let kept = |text: &str| text.chars().filter(|c| *c != '\0').take(MAX_MESSAGE).collect();
        Self {
            code: error.code().id.to_owned(),
            message: kept(error.message()),
            field: error.field().map(kept),
        }
    }
}

impl Why {
    /// The error again, as it was.
    pub(super) fn error(&self) -> Error {
        let code = ALL_CODES.iter().copied().find(|code| code.id == self.code);
        let error = Error::new(code.unwrap_or(&code::INTERNAL), &self.message);
        match &self.field {
            Some(field) => error.at(field),
            None => error,
        }
    }
}

/// A request, as its submitter sees it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Request {
    #[schemars(with = "String")]
    pub id: Uuid,
    pub endpoint: String,
    pub state: State,
    pub submitted_at: Timestamp,
    pub submitted_by: String,
    /// When it was first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When it fails if it was not answered by then; once it has ended, when it is deleted.
    pub expires_at: Timestamp,
    /// How often it was run.
    pub attempts: u32,
    /// 1 is the highest of three.
    pub priority: u32,
    /// The version that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Bytes of its body.
    pub size: u64,
    /// Bytes of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_size: Option<u64>,
    /// Why it failed; while it waits, why the last attempt did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Why>,
    /// Whether somebody is called when it ends.
    pub callback: bool,
}

impl Request {
    /// What events say of it: nothing that was asked or answered.
    pub(super) fn told(&self) -> Value {
        let mut told = json!({
            "id": self.id.to_string(), "endpoint": self.endpoint, "state": self.state,
            "size": self.size, "attempts": self.attempts,
        });
        if let Some(why) = &self.error {
            told["code"] = json!(why.code);
        }
        told
    }
}

/// A request as it is written down.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) shown: Request,
    pub(super) submitter: PrincipalId,
    pub(super) routing_key: Option<String>,
    pub(super) callback: Option<Callback>,
    /// Until it has ended.
    pub(super) body: Option<BlobId>,
    /// The length of the JSON part, if raw tensors follow it.
    pub(super) header_length: Option<usize>,
    pub(super) result: Option<BlobId>,
    pub(super) result_header: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_errors_are_kept_as_text() {
        for state in [State::Queued, State::Running, State::Done, State::Failed, State::Cancelled] {
            assert_eq!(State::parse(state.text()).unwrap(), state);
        }
        assert!(State::parse("lost").is_err());
        let error = Error::invalid("inputs.x", "a\0b", "two");
        let why = Why::from(&error);
        assert!(!why.message.contains('\0'));
        assert_eq!(why.error().code(), error.code());
        assert_eq!(why.error().field(), Some("inputs.x"));
        let long = Why::from(&Error::new(&code::TOO_LARGE, "x".repeat(10_000)));
        assert_eq!(long.message.len(), MAX_MESSAGE);
        let odd = Why { code: "of another version".into(), ..why };
        assert_eq!(*odd.error().code(), code::INTERNAL);
    }
}
