//! Sizes and times as people write them in a configuration file: `64MiB`, `30s`, `1h30m`.
//!
//! Must hold: a printed value parses back to exactly the same value; a text with no unit is never
//! guessed to be seconds. Not here: calendar time, which is [`Timestamp`](crate::Timestamp).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};

use crate::error::Error;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(Duration);

const SIZE_ALLOWED: &str = "a number of bytes with a unit, such as 512KiB, 64MiB or 2GB";
const DURATION_ALLOWED: &str = "a time with units, such as 250ms, 30s, 5m, 1h30m or 7d";

/// Binary units, largest first: the ones a size is printed in.
const BINARY: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
/// Decimal units, understood but never printed.
const DECIMAL: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1000), ("B", 1)];

/// Nanoseconds per unit, largest first.
const TIME: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

impl ByteSize {
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size as an in-memory length; larger than the machine can address means "as large as
    /// it can".
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl HumanDuration {
    #[must_use]
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    #[must_use]
    pub const fn from_mins(minutes: u64) -> Self {
        Self(Duration::from_secs(minutes * 60))
    }

    #[must_use]
    pub const fn from_hours(hours: u64) -> Self {
        Self(Duration::from_secs(hours * 3600))
    }

    #[must_use]
    pub const fn from_days(days: u64) -> Self {
        Self(Duration::from_secs(days * 86_400))
    }

    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<ByteSize> for u64 {
    fn from(size: ByteSize) -> Self {
        size.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = BINARY.iter().find(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size));
        match exact {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for ByteSize {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || Error::invalid("size", text, SIZE_ALLOWED);
        let (digits, unit) = split_number(text.trim());
        let unit = unit.trim_start();
        let factor = if unit.is_empty() {
            1
        } else {
            let known = BINARY.iter().chain(&DECIMAL);
            known.clone().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refuse)?.1
        };
        let count: u64 = digits.parse().map_err(|_| refuse())?;
        count.checked_mul(factor).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_nanos();
        if left == 0 {
            return f.write_str("0s");
        }
        for (unit, nanos) in TIME {
            if left >= nanos {
                write!(f, "{}{unit}", left / nanos)?;
                left %= nanos;
            }
        }
        Ok(())
    }
}

impl FromStr for HumanDuration {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || Error::invalid("duration", text, DURATION_ALLOWED);
        let mut rest = text.trim();
        let mut total: u128 = 0;
        let mut smallest = u128::MAX;
        while !rest.is_empty() {
            let (digits, tail) = split_number(rest);
            let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let nanos = TIME.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?.1;
            // `5s2m` is more likely a slip than a wish: units come largest first, each once.
            if nanos >= smallest {
                return Err(refuse());
            }
            smallest = nanos;
            let count: u64 = digits.parse().map_err(|_| refuse())?;
            total = total.checked_add(u128::from(count) * nanos).ok_or_else(refuse)?;
            rest = tail.trim_start();
        }
        if smallest == u128::MAX {
            return Err(refuse());
        }
        let seconds = u64::try_from(total / 1_000_000_000).map_err(|_| refuse())?;
        let nanos = u32::try_from(total % 1_000_000_000).map_err(|_| refuse())?;
        Ok(Self(Duration::new(seconds, nanos)))
    }
}

/// Splits the leading digits off.
fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Reads either spelling of a size: the text, or a plain number of bytes.
struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SIZE_ALLOWED)
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes)
            .map(ByteSize)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> serde::Deserialize<'de> for ByteSize {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(SizeVisitor)
    }
}

impl<'de> serde::Deserialize<'de> for HumanDuration {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse()
            .map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &DURATION_ALLOWED))
    }
}

impl serde::Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl serde::Serialize for HumanDuration {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl schemars::JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": ["string", "integer"], "format": "byte-size"})
    }
}

impl schemars::JsonSchema for HumanDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "human-duration"})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("2GB", 2_000_000_000),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes), "{text}");
        }
        for bad in ["", "MiB", "-1", "1.5GiB", "1 potato", "99999999999TiB", "1MiB2"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
        assert_eq!(ByteSize::mib(64).to_string(), "64MiB");
        assert_eq!(ByteSize(1000).to_string(), "1000B");
        assert_eq!(serde_json::from_str::<ByteSize>("4096").unwrap(), ByteSize::kib(4));
        assert_eq!(serde_json::from_str::<ByteSize>("\"4KiB\"").unwrap(), ByteSize::kib(4));
        assert!(serde_json::from_str::<ByteSize>("-1").is_err());
    }

    #[test]
    fn durations() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
        ] {
            let expected = HumanDuration::from_millis(millis);
            assert_eq!(text.parse::<HumanDuration>().unwrap(), expected, "{text}");
        }
        for bad in ["", "30", "s", "-5s", "1.5h", "5s2m", "1m1m", "99999999999999999999d", "5 min"]
        {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad:?}");
        }
        assert_eq!(HumanDuration::from_secs(5400).to_string(), "1h30m");
    }

    proptest! {
        #[test]
        fn a_printed_size_parses_back(bytes: u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse::<ByteSize>().unwrap(), ByteSize(bytes));
        }

        #[test]
        fn a_printed_duration_parses_back(seconds: u64, nanos in 0u32..1_000_000_000) {
            let duration = HumanDuration(Duration::new(seconds, nanos));
            prop_assert_eq!(duration.to_string().parse::<HumanDuration>().unwrap(), duration);
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<HumanDuration>();
        }
    }
}
