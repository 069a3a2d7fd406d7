//! Names people choose, restricted so that two different names can never look alike.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $field:literal, $max:literal, $extra:literal, $pattern:literal, $allowed:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Result<Self, Error> {
                let text = text.into();
                let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
                let inner = |b: u8| plain(b) || $extra.as_bytes().contains(&b);
                let ends = |b: Option<&u8>| b.is_some_and(|b| plain(*b));
                let bytes = text.as_bytes();
                let fits = bytes.len() <= $max
                    && ends(bytes.first())
                    && ends(bytes.last())
                    && bytes.iter().all(|b| inner(*b));
                if fits { Ok(Self(text)) } else { Err(Error::invalid($field, text, $allowed)) }
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
            fn from_str(text: &str) -> Result<Self, Error> {
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
                    "type": "string", "pattern": $pattern, "minLength": 1, "maxLength": $max,
                })
            }
        }
    )*};
}

names! {
    /// The name of a tenant, project, zone, object root and the like; it appears in URLs.
    Name, "name", 63, "-", "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    "1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
    /// The sign-in name of a user or service account; an e-mail address in lower case fits.
    UserName, "name", 127, "-._@+", "^[a-z0-9]([a-z0-9._@+-]*[a-z0-9])?$",
    "1 to 127 of a-z, 0-9 and . _ @ + -, beginning and ending with a letter or digit";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_are_refused() {
        for good in ["a", "acme", "team-7", "0", &"x".repeat(63)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        let too_long = "x".repeat(64);
        for bad in [
            "",
            "Acme",
            "acme ",
            " acme",
            "аcme",
            "ac\u{200b}me",
            "a/b",
            "..",
            "-a",
            "a-",
            "a_b",
            &too_long,
        ] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        assert!(UserName::new("mona@example.ae").is_ok());
        assert!(UserName::new("Mona@example.ae").is_err());
    }
}
