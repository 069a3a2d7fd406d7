//! Why there are no records.

/// What kept a reader from reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A server does not answer, or not as it should: it is asked again.
    #[error("{0}")]
    Away(String),
    /// What is asked for was removed, or never was: both ends of what is there.
    #[error("offset {wanted} is not there: the partition has {first} to {end}")]
    Gap { wanted: i64, first: i64, end: i64 },
    /// There is no such topic, stream or partition.
    #[error("{0}")]
    Missing(String),
    /// The server does not let us, or the settings are wrong.
    #[error("{0}")]
    Refused(String),
}

impl Failure {
    pub(crate) fn away(what: impl std::fmt::Display) -> Self {
        // A server's words are kept short: they are shown to people.
        Self::Away(what.to_string().chars().take(300).collect())
    }

    pub(crate) fn refused(what: impl std::fmt::Display) -> Self {
        Self::Refused(what.to_string().chars().take(300).collect())
    }
}
