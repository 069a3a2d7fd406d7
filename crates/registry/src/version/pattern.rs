//! What an operator lets versions be made from: a regular expression over their sources.

use std::borrow::Cow;
use std::fmt;

use falaj_base::Result;
use falaj_mlflow::error::refused;
use regex::{Regex, RegexBuilder};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::access::shown;

/// How large a compiled expression may be.
const MAX_SIZE: usize = 1 << 20;

/// A regular expression that was read when the server started.
#[derive(Clone)]
pub struct SourcePattern(Regex);

impl SourcePattern {
    fn new(text: &str) -> Result<Self, regex::Error> {
        RegexBuilder::new(text).size_limit(MAX_SIZE).build().map(Self)
    }

    /// Refuses a source in which the expression is not found; it may be found anywhere.
    pub(crate) fn check(&self, source: &str) -> Result<()> {
        if self.0.is_match(source) {
            return Ok(());
        }
        let text = format!(
            "Invalid model version source: '{}'. The server takes only sources that match '{}'.",
            shown(source),
            self.0.as_str()
        );
        Err(refused(text).at("source"))
    }
}

impl fmt::Debug for SourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_str().fmt(f)
    }
}

impl Serialize for SourcePattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for SourcePattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        Self::new(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for SourcePattern {
    fn schema_name() -> Cow<'static, str> {
        "SourcePattern".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matches_is_taken() {
        let pattern: SourcePattern = serde_json::from_str("\"^mlflow-artifacts:/\"").unwrap();
        assert!(pattern.check("mlflow-artifacts:/1/r/artifacts").is_ok());
        for not in ["", "s3://path/to/model", " mlflow-artifacts:/1", "models:/m/1"] {
            let text = pattern.check(not).unwrap_err().to_string();
            assert!(text.starts_with("Invalid model version source: '"), "{text}");
        }
        assert_eq!(serde_json::to_string(&pattern).unwrap(), "\"^mlflow-artifacts:/\"");
        for bad in ["\"(\"", "\"\\\\p{L}{1000}{1000}\"", "5"] {
            assert!(serde_json::from_str::<SourcePattern>(bad).is_err(), "{bad}");
        }
    }
}
