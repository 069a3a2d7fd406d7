//! Names of datasets and of their tags.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};

/// The longest name, in bytes.
const MAX_LEN: usize = 127;

const ALLOWED: &str =
    "1 to 127 of A-Z, a-z, 0-9, _, - and ., beginning with a letter, a digit or _";

fn fits(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= MAX_LEN
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || matches!(byte, b'-' | b'.'))
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $field:literal, $fits:expr, $allowed:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Result<Self> {
                let text = text.into();
                if $fits(&text) { Ok(Self(text)) } else { Err(Error::invalid($field, text, $allowed)) }
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(d)?).map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
                    "minLength": 1, "maxLength": MAX_LEN,
                })
            }
        }
    )*};
}

names! {
    /// The name of a dataset.
    DatasetName, "name", fits, ALLOWED;
    /// A name of a version. It is no number, or it could be taken for one.
    TagName, "tag",
        |text: &str| fits(text) && text != "latest" && !text.bytes().all(|byte| byte.is_ascii_digit()),
        "1 to 127 of A-Z, a-z, 0-9, _, - and ., beginning with a letter, a digit or _; no number, and not `latest`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_tags_are_no_versions() {
        for good in ["trips", "Trips_2026.05", "_x", "1a"] {
            assert!(DatasetName::new(good).is_ok() && TagName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a@2", "-a", "a b", "é", &"x".repeat(128)] {
            assert!(DatasetName::new(bad).is_err() && TagName::new(bad).is_err(), "{bad}");
        }
        for bad in ["12", "latest"] {
            assert!(TagName::new(bad).is_err(), "{bad}");
        }
    }
}
