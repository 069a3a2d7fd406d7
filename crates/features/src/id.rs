//! Ids of what this domain makes: a prefix and a time-ordered UUID as 32 hex digits, as ids are
//! written everywhere here.

/// An id with a prefix of its own. Any other spelling of it is refused, so that one id has exactly
/// one text.
macro_rules! prefixed {
    ($(#[$doc:meta])* $name:ident = $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// A new id, later than every id made before it on this machine.
            #[must_use]
            #[allow(clippy::new_without_default, reason = "an id has no default value")]
            pub fn new() -> Self {
                Self(uuid::Uuid::now_v7())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}{}", $prefix, self.0.simple())
            }
        }

        impl std::str::FromStr for $name {
            type Err = falaj_base::Error;

            fn from_str(text: &str) -> falaj_base::Result<Self> {
                let plain = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
                let digits = text.strip_prefix($prefix);
                let digits = digits.filter(|it| it.len() == 32 && it.bytes().all(plain));
                let parsed = digits.and_then(|digits| uuid::Uuid::try_parse(digits).ok());
                let allowed = concat!("`", $prefix, "` followed by 32 hex digits");
                parsed.map(Self).ok_or_else(|| falaj_base::Error::invalid("id", text, allowed))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let pattern = concat!("^", $prefix, "[0-9a-f]{32}$");
                schemars::json_schema!({"type": "string", "pattern": pattern})
            }
        }

        impl From<$name> for falaj_store::db::Value {
            fn from(id: $name) -> Self {
                Self::Text(id.to_string())
            }
        }

        impl falaj_store::db::FromValue for $name {
            fn from_value(value: &falaj_store::db::Value) -> Option<Self> {
                match value {
                    falaj_store::db::Value::Text(text) => text.parse().ok(),
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use prefixed;
