//! Months and quarters, in UTC. Pure.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Utc};
use falaj_base::{Error, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// For how long a budget is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// A calendar month, in UTC.
    Month,
    /// Three of them, from January on.
    Quarter,
    /// All of the time.
    Total,
}

/// A month by its number: those since the year 0.
pub(crate) type Month = i32;

impl Period {
    pub const ALL: [Self; 3] = [Self::Month, Self::Quarter, Self::Total];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Total => "total",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|period| period.as_str() == text)
            .ok_or_else(|| Error::invalid("period", text, "month, quarter, total"))
    }

    /// The stretch of this kind that a moment is in.
    pub(crate) fn window(self, now: Timestamp) -> Window {
        let month = month_of(now);
        let (first, end) = match self {
            Self::Month => (month, month + 1),
            Self::Quarter => (month - month.rem_euclid(3), month - month.rem_euclid(3) + 3),
            Self::Total => {
                let (from, to) = (Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX));
                return Window { period: self, first: 0, end: Month::MAX, from, to };
            }
        };
        Window { period: self, first, end, from: begins(first), to: begins(end) }
    }

    /// Of a stretch of time, whenever it begins, at least this lies in one period: the one that it begins
    /// in or the next.
    pub(crate) fn least_part(self, whole: Duration) -> Duration {
        let shortest = match self {
            Self::Month => 28,
            Self::Quarter => 31 + 28 + 31,
            Self::Total => return whole,
        };
        (whole / 2).min(Duration::from_hours(24 * shortest))
    }

    /// The one after that; all of the time has none.
    pub(crate) fn next(self, window: &Window) -> Option<Window> {
        (self != Self::Total).then(|| self.window(window.to))
    }
}

/// One month, one quarter, or all of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    period: Period,
    pub(crate) first: Month,
    /// The first month that is not in it any more.
    pub(crate) end: Month,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Window {
    /// Its name, such as `2026-11` or `2026-Q4`.
    pub(crate) fn label(&self) -> String {
        let (year, month) = (self.first.div_euclid(12), self.first.rem_euclid(12));
        match self.period {
            Period::Month => format!("{year}-{:02}", month + 1),
            Period::Quarter => format!("{year}-Q{}", month / 3 + 1),
            Period::Total => "all time".to_owned(),
        }
    }
}

pub(crate) fn month_of(at: Timestamp) -> Month {
    let date = DateTime::<Utc>::from_timestamp_micros(at.micros()).unwrap_or_default();
    let month = i32::try_from(date.month0()).unwrap_or(0);
    date.year().saturating_mul(12).saturating_add(month)
}

fn begins(month: Month) -> Timestamp {
    let number = u32::try_from(month.rem_euclid(12) + 1).unwrap_or(1);
    let date = NaiveDate::from_ymd_opt(month.div_euclid(12), number, 1).unwrap_or_default();
    Timestamp::from_micros(date.and_time(NaiveTime::MIN).and_utc().timestamp_micros())
}

/// A stretch of time, cut where months begin.
pub(crate) fn parts_by_month(from: Timestamp, to: Timestamp) -> Vec<(Month, Timestamp, Timestamp)> {
    let mut parts = Vec::new();
    let mut at = from;
    loop {
        let month = month_of(at);
        let end = begins(month.saturating_add(1));
        // What lies beyond all calendars is in the last month.
        if end >= to || end <= at {
            parts.push((month, at, to.max(at)));
            return parts;
        }
        parts.push((month, at, end));
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_moment_is_in_one_month_and_one_quarter() {
        for (now, period, label, from, to) in [
            ("2026-11-16T12:00:00Z", Period::Month, "2026-11", "2026-11-01", "2026-12-01"),
            ("2026-12-31T23:59:59Z", Period::Month, "2026-12", "2026-12-01", "2027-01-01"),
            ("2026-12-31T23:59:59Z", Period::Quarter, "2026-Q4", "2026-10-01", "2027-01-01"),
            ("2024-02-29T00:00:00Z", Period::Month, "2024-02", "2024-02-01", "2024-03-01"),
            ("2024-02-29T00:00:00Z", Period::Quarter, "2024-Q1", "2024-01-01", "2024-04-01"),
        ] {
            let window = period.window(at(now));
            let day = |text: &str| at(&format!("{text}T00:00:00Z"));
            assert_eq!(window.label(), label);
            assert_eq!((window.from, window.to), (day(from), day(to)), "{now}");
            assert!((window.first..window.end).contains(&month_of(at(now))));
        }
        let now = at("2026-11-16T12:00:00Z");
        for (period, next) in [
            (Period::Month, Some("2026-12")),
            (Period::Quarter, Some("2027-Q1")),
            (Period::Total, None),
        ] {
            let window = period.next(&period.window(now));
            assert_eq!(window.map(|it| it.label()).as_deref(), next);
        }
        let all = Period::Total.window(now);
        assert!((all.first..all.end).contains(&month_of(at("1970-01-01T00:00:00Z"))));
    }

    #[test]
    fn whenever_something_begins_so_much_of_it_lies_in_one_period() {
        let days = |days: u64| Duration::from_hours(24 * days);
        for (period, whole, least) in [
            (Period::Total, 400, 400),
            (Period::Month, 20, 10),
            (Period::Month, 90, 28),
            (Period::Quarter, 90, 45),
            (Period::Quarter, 400, 90),
        ] {
            assert_eq!(period.least_part(days(whole)), days(least), "{period:?} {whole}");
            // A year of beginnings, half a day apart from where periods begin.
            let mut found = Duration::MAX;
            for day in 0..370 {
                let begins = at("2026-12-31T12:00:00Z") + days(day);
                let this = period.window(begins);
                let part = |window: &Window| {
                    let (from, to) =
                        (begins.max(window.from), (begins + days(whole)).min(window.to));
                    if to > from { to.since(from) } else { Duration::ZERO }
                };
                let next = period.next(&this).map_or(Duration::ZERO, |next| part(&next));
                found = found.min(part(&this).max(next));
            }
            assert!(
                (days(least)..=days(least + 1)).contains(&found),
                "{period:?} {whole} {found:?}"
            );
        }
    }

    #[test]
    fn what_reaches_over_months_is_cut_where_they_begin() {
        let (from, to) = (at("2026-11-30T23:00:00Z"), at("2027-01-01T01:00:00Z"));
        let parts = parts_by_month(from, to);
        let lengths: Vec<u64> =
            parts.iter().map(|(_, a, b)| b.since(*a).as_secs() / 3600).collect();
        assert_eq!(lengths, [1, 31 * 24, 1]);
        assert!(parts.windows(2).all(|two| two[0].2 == two[1].1 && two[0].0 + 1 == two[1].0));
        assert_eq!(parts_by_month(from, from), [(month_of(from), from, from)]);
        let far = Timestamp::from_micros(i64::MAX);
        assert_eq!(parts_by_month(far, far).len(), 1);
    }
}
