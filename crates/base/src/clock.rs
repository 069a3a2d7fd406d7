//! Time: one unit (microseconds since 1970, UTC), one text (RFC 3339), one source.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

use crate::error::Error;

/// A moment, to the microsecond: what both databases keep exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// As HTTP writes it in a `Date`, to the second.
    #[must_use]
    pub fn http_date(self) -> String {
        let time = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or_default();
        time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    /// The time from `earlier` to this moment; zero if this one is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_micros(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            None => write!(f, "{} µs", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        DateTime::parse_from_rfc3339(text)
            .map(|time| Self(time.timestamp_micros()))
            .map_err(|_| Error::invalid("time", text, "an RFC 3339 time like 2026-01-31T09:00:00Z"))
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

/// Where "now" comes from: the machine, or a hand that a test turns.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still at `start` until [`Clock::advance`] moves it.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since_epoch =
                    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
            }
            Self::Manual(micros) => Timestamp(micros.load(Ordering::Acquire)),
        }
    }

    /// Moves a manual clock forward; the system's clock cannot be moved and stays as it is.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(micros) = self {
            let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            micros.fetch_add(by, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_its_text() {
        let moment: Timestamp = "2026-11-15T08:30:00.123456Z".parse().unwrap();
        assert_eq!(moment.to_string(), "2026-11-15T08:30:00.123456Z");
        assert_eq!("2026-11-15T12:30:00.123456+04:00".parse::<Timestamp>().unwrap(), moment);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(Timestamp::from_micros(5));
        clock.advance(Duration::from_micros(7));
        assert_eq!(clock.now().micros(), 12);
        assert_eq!(clock.now().since(Timestamp::from_micros(100)), Duration::ZERO);
    }
}
