//! The id of a run: 16 bytes, shown as 32 hex digits as MLflow's clients expect.

use std::fmt;

use falaj_base::Result;
use falaj_mlflow::error::refused;
use falaj_store::db::{FromValue, Value};
use uuid::Uuid;

/// A run's id. New ones grow with time, which keeps what belongs together together on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub Uuid);

impl RunId {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "an id has no default value")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads an id; `None` for one that is well formed but cannot be ours.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let bytes = text.as_bytes();
        let formed = bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.len() <= 256
            && bytes.iter().all(|b| word(*b));
        if !formed {
            let shown: String = text.chars().take(64).collect();
            return Err(refused(format!(
                "Invalid value {shown:?} for parameter 'run_id' supplied."
            ))
            .at("run_id"));
        }
        let ours =
            bytes.len() == 32 && bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        Ok(if ours { Uuid::try_parse(text).ok().map(Self) } else { None })
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<RunId> for Value {
    fn from(id: RunId) -> Self {
        Self::Blob(id.0.as_bytes().to_vec())
    }
}

impl FromValue for RunId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Uuid::from_slice(bytes).ok().map(Self),
            _ => None,
        }
    }
}
