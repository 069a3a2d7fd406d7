//! What a check found wrong.

use std::fmt;

use serde::Serialize;

use crate::audit::checkpoint::NoteError;

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// The entry, or the line that holds it, is not what was logged.
    Altered,
    Missing,
    Reordered,
    Duplicated,
    /// The export ends too early.
    Truncated,
    /// A stretch of entries was replaced together with its hashes.
    Rewritten,
    /// The export is sound in itself and is not the log that the checkpoint speaks of.
    CheckpointMismatch,
    /// An entry that no signature vouches for.
    Uncovered,
    BadSignature,
    BadKey,
    /// Not an export, a checkpoint or a key at all.
    Malformed,
    /// The export could not be read from where it lies.
    Unreadable,
}

/// The first fault found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub problem: Problem,
    /// The first bad entry, where one can be named.
    pub index: Option<u64>,
    /// What is wrong with it, for people.
    pub text: String,
}

impl Fault {
    pub(super) const fn new(problem: Problem, index: Option<u64>, text: String) -> Self {
        Self { problem, index, text }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Altered => "altered",
            Self::Missing => "missing",
            Self::Reordered => "out of order",
            Self::Duplicated => "duplicated",
            Self::Truncated => "cut off",
            Self::Rewritten => "rewritten",
            Self::CheckpointMismatch => "the log is not the one the checkpoint was signed for",
            Self::Uncovered => "not covered by a signature",
            Self::BadSignature => "the signature does not hold",
            Self::BadKey => "the public key cannot be used",
            Self::Malformed => "the input is not well formed",
            Self::Unreadable => "the export could not be read",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index {
            write!(f, "entry {index}: ")?;
        }
        write!(f, "{}: {}", self.problem, self.text)
    }
}

impl std::error::Error for Fault {}

impl From<NoteError> for Fault {
    fn from(error: NoteError) -> Self {
        let problem = match error {
            NoteError::Malformed(_) => Problem::Malformed,
            NoteError::Unsigned | NoteError::BadSignature => Problem::BadSignature,
            NoteError::BadKey(_) => Problem::BadKey,
        };
        Self::new(problem, None, error.to_string())
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::new(Problem::Unreadable, None, error.to_string())
    }
}
