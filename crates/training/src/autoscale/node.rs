//! Which nodes of a pool are there, as the database knows it.

use falaj_base::Timestamp;
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a node of a pool stands. One without a row is up, or away where nodes come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Not there.
    Away,
    /// Asked for, and not there yet.
    Asked,
    Up,
    /// It takes nothing new until somebody says so.
    Drained,
    /// It takes nothing new, and goes when it is empty.
    Leaving,
    /// It went, with everything on it.
    Gone,
}

impl NodeState {
    const ALL: [Self; 6] =
        [Self::Away, Self::Asked, Self::Up, Self::Drained, Self::Leaving, Self::Gone];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Asked => "asked",
            Self::Up => "up",
            Self::Drained => "drained",
            Self::Leaving => "leaving",
            Self::Gone => "gone",
        }
    }

    /// Whether jobs may be on it.
    #[must_use]
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Up | Self::Drained | Self::Leaving)
    }
}

impl From<NodeState> for Value {
    fn from(state: NodeState) -> Self {
        Self::Text(state.as_str().to_owned())
    }
}

impl FromValue for NodeState {
    fn from_value(value: &Value) -> Option<Self> {
        let text = String::from_value(value)?;
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// What is kept of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) state: NodeState,
    /// Where its ranks reach each other, if it said so.
    pub(crate) address: Option<String>,
    pub(crate) since: Timestamp,
}
