//! The id of a logged model: `m-` and 32 hex digits.

use std::fmt;

use falaj_store::db::{FromValue, Value};
use uuid::Uuid;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub Uuid);

impl ModelId {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "an id has no default value")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads an id; `None` for a text that cannot be one of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("m-")?;
        let hex =
            digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if hex { Uuid::try_parse(digits).ok().map(Self) } else { None }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m-{}", self.0.simple())
    }
}

impl fmt::Debug for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ModelId> for Value {
    fn from(id: ModelId) -> Self {
        Self::Blob(id.0.as_bytes().to_vec())
    }
}

impl FromValue for ModelId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Uuid::from_slice(bytes).ok().map(Self),
            _ => None,
        }
    }
}
