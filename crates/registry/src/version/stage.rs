//! The stages of old: how promotion was spelled before there were aliases.

use falaj_base::Result;
use falaj_mlflow::error::refused;
use falaj_store::db::{FromValue, Value};

use crate::access::shown;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    None,
    Staging,
    Production,
    Archived,
}

impl Stage {
    pub const ALL: [Self; 4] = [Self::None, Self::Staging, Self::Production, Self::Archived];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Staging => "Staging",
            Self::Production => "Production",
            Self::Archived => "Archived",
        }
    }

    /// Reads a stage in any case.
    pub fn parse(text: &str) -> Result<Self> {
        let named = |stage: &Self| stage.as_str().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(named).ok_or_else(|| {
            refused(format!(
                "Invalid Model Version stage: {}. Value must be one of None, Staging, Production, \
                 Archived.",
                shown(text)
            ))
            .at("stage")
        })
    }

    /// Whether versions in it are in use, so that a newcomer can send the others to the archive.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Staging | Self::Production)
    }
}

impl From<Stage> for Value {
    fn from(stage: Stage) -> Self {
        Self::Text(stage.as_str().to_owned())
    }
}

impl FromValue for Stage {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::ALL.into_iter().find(|stage| stage.as_str() == text),
            _ => None,
        }
    }
}
