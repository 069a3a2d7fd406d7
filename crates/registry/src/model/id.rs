//! How tables refer to a model. Callers know models by name.

use std::fmt;

use falaj_store::db::{FromValue, Value};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RegisteredId(Uuid);

impl RegisteredId {
    /// The id of no model: for what stands where one is expected and is not registered.
    pub const NONE: Self = Self(Uuid::nil());

    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    pub(crate) fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for RegisteredId {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for RegisteredId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<RegisteredId> for Value {
    fn from(id: RegisteredId) -> Self {
        Self::Blob(id.0.as_bytes().to_vec())
    }
}

impl FromValue for RegisteredId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Uuid::from_slice(bytes).ok().map(Self),
            _ => None,
        }
    }
}
