//! Values that must never be shown.

use std::fmt;

use zeroize::Zeroizing;

/// What stands in place of a secret wherever one would be shown.
pub const HIDDEN: &str = "(hidden)";

/// A secret text: wiped when dropped, absent from `Debug` and from every serialised form.
///
/// The only way to the value is [`Secret::expose`], so every use can be found by name.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(if self.is_empty() { "" } else { HIDDEN })
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self::new)
    }
}

impl schemars::JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "password", "writeOnly": true})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_cannot_be_printed_or_serialised() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(serde_json::to_string(&secret).unwrap(), format!("{HIDDEN:?}"));
        assert_eq!(secret.expose(), "hunter2");
    }
}
