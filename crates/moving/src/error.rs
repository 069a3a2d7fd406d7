//! What can go wrong with somebody else's store.

use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {what}: {cause}")]
    Read { what: String, cause: String },
    #[error("cannot write {what}: {cause}")]
    Write { what: String, cause: String },
    #[error("{at}: {why}")]
    Malformed { at: String, why: String },
    #[error("{0}")]
    Unsupported(String),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn malformed(at: impl ToString, why: impl ToString) -> Self {
        Self::Malformed { at: at.to_string(), why: why.to_string() }
    }

    /// For `map_err` on what reads a file.
    pub(crate) fn reading(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let what = path.display().to_string();
        move |cause| Self::Read { what: what.clone(), cause: cause.to_string() }
    }

    pub(crate) fn database(cause: impl std::fmt::Display) -> Self {
        Self::Read { what: "the database".to_owned(), cause: cause.to_string() }
    }

    pub(crate) fn writing(what: impl ToString, cause: impl ToString) -> Self {
        Self::Write { what: what.to_string(), cause: cause.to_string() }
    }
}
