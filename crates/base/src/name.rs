//! Names people choose, restricted so that two different names can never look alike.

/// Declares texts that were checked when they were made: `Name, "field", check, max, pattern, allowed;`.
/// `check` takes the text; `max` and `pattern` tell the same to readers of the API's description.
#[macro_export]
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $field:literal, $fits:expr, $max:expr, $pattern:expr, $allowed:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> $crate::Result<Self> {
                let text = text.into();
                if $fits(text.as_str()) {
                    Ok(Self(text))
                } else {
                    Err($crate::Error::invalid($field, text, $allowed))
                }
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::Error;
            fn from_str(text: &str) -> $crate::Result<Self> {
                Self::new(text)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(d)?;
                Self::new(text).map_err(::serde::de::Error::custom)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({
                    "type": "string", "pattern": $pattern, "minLength": 1, "maxLength": $max,
                })
            }
        }
    )*};
}

/// Up to so many small letters and digits, with some others between them.
fn plain(text: &str, max: usize, others: &[u8]) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<&u8>| b.is_some_and(|b| plain(*b));
    let bytes = text.as_bytes();
    bytes.len() <= max
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| plain(*b) || others.contains(b))
}

names! {
    /// The name of a tenant, project, zone, object root and the like; it appears in URLs.
    Name, "name", |text| plain(text, 63, b"-"), 63, "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    "1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
    /// The sign-in name of a user or service account; an e-mail address in lower case fits.
    UserName, "name", |text| plain(text, 127, b"-._@+"), 127, "^[a-z0-9]([a-z0-9._@+-]*[a-z0-9])?$",
    "1 to 127 of a-z, 0-9 and . _ @ + -, beginning and ending with a letter or digit";
}

/// What a name is that may come from elsewhere, as those of columns, features and datasets do: capitals
/// and underscores are common there.
pub mod foreign {
    /// The longest, in bytes.
    pub const MAX_LEN: usize = 127;
    pub const PATTERN: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";
    pub const ALLOWED: &str =
        "1 to 127 of A-Z, a-z, 0-9, _, - and ., beginning with a letter, a digit or _";

    #[must_use]
    pub fn fits(text: &str) -> bool {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        text.len() <= MAX_LEN
            && text.bytes().next().is_some_and(word)
            && text.bytes().all(|byte| word(byte) || matches!(byte, b'-' | b'.'))
    }
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
