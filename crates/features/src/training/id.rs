//! The id of a training set: `tset_` and a time-ordered UUID as 32 hex digits, as ids are written
//! everywhere here.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};
use falaj_store::db::{FromValue, Value};
use uuid::Uuid;

const PREFIX: &str = "tset_";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrainingSetId(Uuid);

impl TrainingSetId {
    /// A new id, later than every id made before it on this machine.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "an id has no default value")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for TrainingSetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0.simple())
    }
}

impl FromStr for TrainingSetId {
    type Err = Error;

    /// Any other spelling is refused, so that one id has exactly one text.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.strip_prefix(PREFIX).filter(|digits| {
            digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
        let parsed = digits.and_then(|digits| Uuid::try_parse(digits).ok());
        parsed
            .map(Self)
            .ok_or_else(|| Error::invalid("id", text, "`tset_` followed by 32 hex digits"))
    }
}

impl serde::Serialize for TrainingSetId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl schemars::JsonSchema for TrainingSetId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TrainingSetId".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^tset_[0-9a-f]{32}$"})
    }
}

impl From<TrainingSetId> for Value {
    fn from(id: TrainingSetId) -> Self {
        Self::Text(id.to_string())
    }
}

impl FromValue for TrainingSetId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}
