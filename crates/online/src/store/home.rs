//! Whose rows a store has.

use std::fmt;

use super::Position;

/// The database that a store's rows are numbered by: rows of another would be taken for its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Stays when the database is restored.
    pub installation: String,
    /// Another one after a restore, since what was numbered meanwhile is numbered again.
    pub generation: String,
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.installation, self.generation)
    }
}

impl Home {
    pub(super) fn read(text: &str) -> Self {
        let (installation, generation) = text.split_once('/').unwrap_or((text, ""));
        Self { installation: installation.to_owned(), generation: generation.to_owned() }
    }
}

/// What a store remembers of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// None if nobody has settled in.
    pub home: Option<Home>,
    /// Its own name. One that has lost its rows has lost that too, and gets another.
    pub id: Option<String>,
    /// The position that survives a crash together with the rows applied before it.
    pub reached: Position,
}
