//! Where a version is promoted to.

use std::fmt;

use falaj_base::{Error, Result};

use crate::alias::check_free;
use crate::version::Stage;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Alias(String),
    Stage(Stage),
}

impl Target {
    /// Reads one of the two ways to say it.
    pub(crate) fn parse(alias: Option<String>, stage: Option<&str>) -> Result<Self> {
        match (alias, stage) {
            (Some(alias), None) => check_free(&alias).map(|()| Self::Alias(alias)),
            (None, Some(stage)) => Stage::parse(stage).map(Self::Stage),
            _ => Err(Error::invalid("alias", "both or neither", "either an alias or a stage")),
        }
    }

    /// The kind and the name, as tables keep them.
    pub(crate) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Alias(alias) => ("alias", alias),
            Self::Stage(stage) => ("stage", stage.as_str()),
        }
    }

    pub(crate) fn from_parts(kind: &str, name: &str) -> Result<Self> {
        match kind {
            "alias" => Ok(Self::Alias(name.to_owned())),
            _ => Stage::parse(name).map(Self::Stage),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.parts();
        write!(f, "{kind} {name}")
    }
}
