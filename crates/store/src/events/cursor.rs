//! A place in the event log.

use std::fmt;
use std::str::FromStr;

use falaj_base::Error;

/// The commit order of an event: transaction, then place within it. As text `tx-seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    pub tx: i64,
    pub seq: i64,
}

impl Cursor {
    /// Before the first event.
    pub const START: Self = Self { tx: 0, seq: 0 };
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.tx, self.seq)
    }
}

impl FromStr for Cursor {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<i64>().ok().filter(|_| plain)
        };
        text.split_once('-')
            .and_then(|(tx, seq)| Some(Self { tx: number(tx)?, seq: number(seq)? }))
            .ok_or_else(|| {
                Error::invalid("cursor", text, "the `sequence` of an event, like `0-42`")
            })
    }
}

impl serde::Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cursor {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Cursor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cursor".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[0-9]+-[0-9]+$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_has_one_text() {
        assert_eq!("7-42".parse::<Cursor>().unwrap().to_string(), "7-42");
        for bad in ["", "7", "7-", "-7-1", "7--1", "+7-1", "7-1-2", "99999999999999999999-1"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad:?}");
        }
    }
}
