//! Parts of moments: the Gregorian calendar, UTC.

use chrono::{DateTime, Datelike, NaiveDate, Timelike, Utc};

/// The first and the last microsecond that have a year of four digits.
const FIRST: i64 = -62_135_596_800_000_000;
const LAST: i64 = 253_402_300_799_999_999;

const SECOND: i64 = 1_000_000;

/// A part of a moment, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    /// 0 is Sunday.
    DayOfWeek,
    /// 1 is Monday.
    IsoDayOfWeek,
    DayOfYear,
    /// Seconds since 1970.
    Epoch,
}

const NAMES: [(&str, Unit); 15] = [
    ("microsecond", Unit::Microsecond),
    ("millisecond", Unit::Millisecond),
    ("second", Unit::Second),
    ("minute", Unit::Minute),
    ("hour", Unit::Hour),
    ("day", Unit::Day),
    ("week", Unit::Week),
    ("month", Unit::Month),
    ("quarter", Unit::Quarter),
    ("year", Unit::Year),
    ("dow", Unit::DayOfWeek),
    ("dayofweek", Unit::DayOfWeek),
    ("isodow", Unit::IsoDayOfWeek),
    ("doy", Unit::DayOfYear),
    ("epoch", Unit::Epoch),
];

impl Unit {
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, unit)| *unit)
    }

    /// How long it always is, in microseconds; none if that differs or it is no length.
    fn length(self) -> Option<i64> {
        Some(match self {
            Self::Microsecond => 1,
            Self::Millisecond => 1000,
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3600 * SECOND,
            Self::Day => 86_400 * SECOND,
            Self::Week => 7 * 86_400 * SECOND,
            _ => return None,
        })
    }

    /// Whether moments can be cut down to it, and counted in it.
    pub(super) fn is_span(self) -> bool {
        self.length().is_some() || matches!(self, Self::Month | Self::Quarter | Self::Year)
    }
}

fn date(micros: i64) -> Option<DateTime<Utc>> {
    (FIRST..=LAST).contains(&micros).then(|| DateTime::from_timestamp_micros(micros)).flatten()
}

fn start_of(year: i32, month: u32) -> Option<i64> {
    let first = NaiveDate::from_ymd_opt(year, month, 1)?.and_hms_opt(0, 0, 0)?;
    Some(first.and_utc().timestamp_micros())
}

/// Weeks begin on Mondays, and 1970 began on a Thursday.
const MONDAY: i64 = 3 * 86_400 * SECOND;

/// The beginning of the unit that a moment lies in; none beyond the years of four digits.
pub(super) fn cut(unit: Unit, micros: i64) -> Option<i64> {
    let moment = date(micros)?;
    let down = |length: i64| micros.div_euclid(length).checked_mul(length);
    match unit {
        Unit::Week => {
            let length = unit.length()?;
            Some((micros + MONDAY).div_euclid(length) * length - MONDAY)
        }
        Unit::Month => start_of(moment.year(), moment.month()),
        Unit::Quarter => start_of(moment.year(), (moment.month() - 1) / 3 * 3 + 1),
        Unit::Year => start_of(moment.year(), 1),
        unit => down(unit.length()?),
    }
}

/// A part of a moment, as a number.
pub(super) fn part(unit: Unit, micros: i64) -> Option<i64> {
    let moment = date(micros)?;
    let within = micros.rem_euclid(SECOND);
    Some(match unit {
        Unit::Microsecond => i64::from(moment.second()) * SECOND + within,
        Unit::Millisecond => i64::from(moment.second()) * 1000 + within / 1000,
        Unit::Second => moment.second().into(),
        Unit::Minute => moment.minute().into(),
        Unit::Hour => moment.hour().into(),
        Unit::Day => moment.day().into(),
        Unit::Week => moment.iso_week().week().into(),
        Unit::Month => moment.month().into(),
        Unit::Quarter => ((moment.month() - 1) / 3 + 1).into(),
        Unit::Year => moment.year().into(),
        Unit::DayOfWeek => moment.weekday().num_days_from_sunday().into(),
        Unit::IsoDayOfWeek => moment.weekday().number_from_monday().into(),
        Unit::DayOfYear => moment.ordinal().into(),
        Unit::Epoch => micros.div_euclid(SECOND),
    })
}

/// How many beginnings of a unit lie between two moments.
pub(super) fn between(unit: Unit, start: i64, end: i64) -> Option<i64> {
    let months = |micros: i64| {
        let moment = date(micros)?;
        Some(i64::from(moment.year()) * 12 + i64::from(moment.month0()))
    };
    let per = |count: i64| Some(months(end)?.div_euclid(count) - months(start)?.div_euclid(count));
    match unit {
        Unit::Month => per(1),
        Unit::Quarter => per(3),
        Unit::Year => per(12),
        unit => {
            let (start, end, length) = (cut(unit, start)?, cut(unit, end)?, unit.length()?);
            Some((end - start) / length)
        }
    }
}

/// Reads a moment; without an offset it is taken for UTC.
pub(super) fn read(text: &str) -> Option<i64> {
    let text = text.trim();
    let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
    let naive =
        || forms.iter().find_map(|form| chrono::NaiveDateTime::parse_from_str(text, form).ok());
    let day = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
    let micros = match DateTime::parse_from_rfc3339(text) {
        Ok(moment) => moment.timestamp_micros(),
        Err(_) => naive().or_else(day)?.and_utc().timestamp_micros(),
    };
    (FIRST..=LAST).contains(&micros).then_some(micros)
}

/// A moment as text; none beyond the years of four digits.
pub(super) fn write(micros: i64) -> Option<String> {
    Some(date(micros)?.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
}

/// A moment by the seconds since 1970.
pub(super) fn of_seconds(seconds: f64) -> Option<i64> {
    let micros = (seconds * 1e6).round();
    #[allow(clippy::cast_possible_truncation, reason = "what is far outside is cut to the ends")]
    let whole = micros as i64;
    (micros.is_finite() && (FIRST..=LAST).contains(&whole)).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_beginnings() {
        let at = read("2026-05-01T13:14:15.5Z").unwrap();
        let table = [
            (Unit::Year, 2026, "2026-01-01T00:00:00Z"),
            (Unit::Quarter, 2, "2026-04-01T00:00:00Z"),
            (Unit::Month, 5, "2026-05-01T00:00:00Z"),
            (Unit::Week, 18, "2026-04-27T00:00:00Z"),
            (Unit::Day, 1, "2026-05-01T00:00:00Z"),
            (Unit::Hour, 13, "2026-05-01T13:00:00Z"),
            (Unit::Minute, 14, "2026-05-01T13:14:00Z"),
            (Unit::Second, 15, "2026-05-01T13:14:15Z"),
        ];
        for (unit, number, beginning) in table {
            assert_eq!(part(unit, at), Some(number), "{unit:?}");
            assert_eq!(cut(unit, at).and_then(write).as_deref(), Some(beginning), "{unit:?}");
        }
        // A Friday.
        assert_eq!(part(Unit::DayOfWeek, at), Some(5));
        assert_eq!(part(Unit::DayOfYear, at), Some(121));
        assert_eq!(cut(Unit::Day, -1).and_then(write).as_deref(), Some("1969-12-31T00:00:00Z"));
        assert_eq!(cut(Unit::Year, i64::MAX), None);
        assert_eq!(between(Unit::Day, at, at + 11 * 3600 * SECOND), Some(1));
        assert_eq!(between(Unit::Month, at, at - 86_400 * SECOND), Some(-1));
    }
}
