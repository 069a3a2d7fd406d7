//! What is known about a version's files.

use falaj_base::Timestamp;
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scan;

/// How far the proof has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is about to be made.
    Pending,
    Signed,
    /// There are no files to sign.
    Empty,
    /// A file changed between registration and signing.
    Changed,
    /// It cannot be signed.
    Refused,
    /// The files are not kept by this server.
    Elsewhere,
}

impl State {
    const ALL: [Self; 5] = [Self::Pending, Self::Signed, Self::Empty, Self::Changed, Self::Refused];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Signed => "signed",
            Self::Empty => "empty",
            Self::Changed => "changed",
            Self::Refused => "refused",
            Self::Elsewhere => "elsewhere",
        }
    }
}

impl From<State> for Value {
    fn from(state: State) -> Self {
        Self::Text(state.as_str().to_owned())
    }
}

impl FromValue for State {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::ALL.into_iter().find(|state| state.as_str() == text),
            _ => None,
        }
    }
}

/// A file under a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedFile {
    /// From the version's root.
    pub path: String,
    pub sha256: String,
    pub size: u64,
    /// Which upload it was: the same one has the same content.
    #[serde(default, skip_serializing)]
    #[schemars(skip)]
    pub(crate) artifact: String,
}

/// What the model's own files say, kept as they were when it was signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Declared {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mlmodel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requirements: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conda: Option<String>,
}

/// The proof, as far as there is one.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub state: State,
    /// Why it is not signed.
    pub reason: Option<String>,
    pub files: Vec<SignedFile>,
    /// One digest for all files.
    pub digest: Option<String>,
    /// The id of the key that signed.
    pub key: Option<String>,
    /// The Sigstore bundle.
    pub signature: Option<String>,
    pub scan: Option<scan::Report>,
    pub(crate) declared: Declared,
    /// The run whose data stands behind it, seen by whoever registered it.
    pub(crate) run: Option<String>,
    pub made_at: Option<Timestamp>,
}

impl Evidence {
    /// Nothing yet.
    pub(crate) fn new(state: State) -> Self {
        Self {
            state,
            reason: None,
            files: Vec::new(),
            digest: None,
            key: None,
            signature: None,
            scan: None,
            declared: Declared::default(),
            run: None,
            made_at: None,
        }
    }

    pub(crate) fn because(state: State, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::new(state) }
    }
}
