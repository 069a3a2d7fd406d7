//! Names of features and of what they hang on. They come from columns of tables and from other
//! feature stores, so they may hold capitals and underscores, which the platform's own names may
//! not; what separates the parts of a reference (`view@2:feature`) they cannot hold.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};

/// The longest name, in bytes.
const MAX_LEN: usize = 127;

const ALLOWED: &str =
    "1 to 127 of A-Z, a-z, 0-9, _, - and ., beginning with a letter, a digit or _";

/// The name of an entity, a source, a feature view, a service, a feature, or a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeatureName(String);

impl FeatureName {
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let fits = text.len() <= MAX_LEN
            && text.bytes().next().is_some_and(word)
            && text.bytes().all(|byte| word(byte) || matches!(byte, b'-' | b'.'));
        if fits { Ok(Self(text)) } else { Err(Error::invalid("name", text, ALLOWED)) }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FeatureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FeatureName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl serde::Serialize for FeatureName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for FeatureName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for FeatureName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FeatureName".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
            "minLength": 1, "maxLength": MAX_LEN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_hold_what_separates_names() {
        for good in ["driver_id", "Trips7d", "_x", "a-b.c", &"x".repeat(127)] {
            assert!(FeatureName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a:b", "a@2", "-a", ".a", "a b", "a/b", "é", &"x".repeat(128)] {
            assert!(FeatureName::new(bad).is_err(), "{bad}");
        }
    }
}
