//! Typed ids: a short prefix that names the kind, then a time-ordered UUID (version 7) as 32 hex
//! digits, for example `tnt_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e`.
//!
//! Ids are parsed once, at the edge; a `ProjectId` can never be passed where a `TenantId` is
//! meant. They sort by creation time, which keeps index inserts at the end of the tree.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{Builder, Uuid};

use crate::error::Error;

/// An id for what comes thousands of times a second: its chance is drawn from keys that the system
/// gave to the thread once, not from the system each time. Of one millisecond, ids have no order.
#[must_use]
pub fn frequent() -> Uuid {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Every state has keys of its own, so hashing nothing gives bits that nobody can foretell.
    let bits = || RandomState::new().build_hasher().finish();
    let mut chance = [0; 10];
    chance[..8].copy_from_slice(&bits().to_le_bytes());
    chance[8..].copy_from_slice(&bits().to_le_bytes()[..2]);
    let millis = u64::try_from(now.as_millis()).unwrap_or_default();
    Builder::from_unix_timestamp_millis(millis, &chance).into_uuid()
}

/// Parses `text` as `<prefix>_<32 lower-case hex digits>`; any other spelling is refused, so that
/// one id has exactly one text.
fn parse(prefix: &'static str, text: &str) -> Result<Uuid, Error> {
    let canonical = |digits: &&str| {
        digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    text.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .filter(canonical)
        .and_then(|digits| Uuid::try_parse(digits).ok())
        .ok_or_else(|| Error::invalid("id", text, format!("`{prefix}_` followed by 32 hex digits")))
}

macro_rules! typed_ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// A new id, later than every id made before it on this machine.
            #[must_use]
            #[allow(clippy::new_without_default, reason = "an id has no default value")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            #[must_use]
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                parse($prefix, text).map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "pattern": concat!("^", $prefix, "_[0-9a-f]{32}$"),
                })
            }
        }
    )*};
}

typed_ids! {
    /// A tenant: the outermost wall between customers.
    TenantId = "tnt";
    /// A project inside a tenant.
    ProjectId = "prj";
    /// Whoever acts: a user, a service account, an agent.
    PrincipalId = "pri";
    /// The public half of an API token.
    TokenId = "tok";
    /// A browser session.
    SessionId = "ses";
    /// A role bound to a principal or to a group.
    BindingId = "bnd";
    /// A tenant-written policy.
    PolicyId = "pol";
    /// One entry of the event log.
    EventId = "evt";
    /// Encrypted bytes in an object root.
    BlobId = "blb";
    /// A named object of a project.
    ObjectId = "obj";
    /// A data-encryption key.
    KeyId = "key";
    /// Where models answer requests.
    EndpointId = "ept";
    /// One request, in logs, audit entries and the `x-request-id` header.
    RequestId = "req";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_exactly_one_text() {
        let id = TenantId::new();
        assert_eq!(id.to_string().parse::<TenantId>().unwrap(), id);
        let digits = id.as_uuid().simple().to_string();
        for bad in [
            String::new(),
            digits.clone(),
            format!("prj_{digits}"),
            format!("tnt_{}", digits.to_uppercase()),
            format!("tnt_{}", id.as_uuid()),
            format!("tnt_{digits} "),
            format!("tnt_{{{}}}", &digits[..30]),
        ] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn ids_that_come_often_differ() {
        let mut ids: Vec<_> = (0..10_000).map(|_| frequent()).collect();
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn ids_sort_by_age() {
        let ids: Vec<_> = (0..1000).map(|_| EventId::new()).collect();
        assert!(ids.is_sorted());
    }
}
