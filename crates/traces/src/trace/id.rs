//! The id of a trace. Clients choose it: MLflow's is `tr-` and the 32 hexadecimal digits of
//! OpenTelemetry's, but any short word is one.

use std::fmt;

use falaj_base::hex;
use falaj_store::db::{FromValue, Value};

/// The longest, as in MLflow's own tables.
const LONGEST: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(String);

impl TraceId {
    /// A new one, for clients that do not choose.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "an id has no default value")]
    pub fn new() -> Self {
        Self(format!("tr-{}", uuid::Uuid::now_v7().simple()))
    }

    /// Reads an id; `None` for a text that cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
        let formed = text.bytes().all(word) && (1..=LONGEST).contains(&text.len());
        formed.then(|| Self(text.to_owned()))
    }

    /// The id of a trace that OpenTelemetry knows by these bytes.
    #[must_use]
    pub fn of_otel(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == 16).then(|| Self(format!("tr-{}", hex(bytes))))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&TraceId> for Value {
    fn from(id: &TraceId) -> Self {
        Self::Text(id.0.clone())
    }
}

impl FromValue for TraceId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(Self(text.clone())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for good in ["tr-1234", "a", "req:1.2_3", &"x".repeat(50)] {
            assert_eq!(TraceId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a b", "é", "a\0", "%2e", &"x".repeat(51)] {
            assert!(TraceId::parse(bad).is_none(), "{bad:?}");
        }
        assert!(TraceId::of_otel(&[1; 8]).is_none());
        assert_eq!(
            TraceId::of_otel(&[10; 16]).unwrap().as_str(),
            format!("tr-{}", "0a".repeat(16))
        );
    }
}
