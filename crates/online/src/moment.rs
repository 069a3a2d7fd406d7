//! Moments as text: RFC 3339 with as many digits behind the second as are needed, three by three,
//! which is how protobuf writes them and Feast with it.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};

/// The first and the last microsecond that have a year of four digits.
pub const FIRST: i64 = -62_135_596_800_000_000;
pub const LAST: i64 = 253_402_300_799_999_999;

/// The first and the last day of such a year, counted from 1970.
pub const FIRST_DAY: i32 = -719_162;
pub const LAST_DAY: i32 = 2_932_896;

/// The microseconds since 1970 that a text tells. Without an offset it is taken for UTC, as pandas
/// writes it; parts of a microsecond are cut off. None if it tells no moment.
#[must_use]
pub fn read(text: &str) -> Option<i64> {
    let micros = match DateTime::parse_from_rfc3339(text) {
        Ok(moment) => moment.timestamp_micros(),
        Err(_) => naive(text)?.and_utc().timestamp_micros(),
    };
    (FIRST..=LAST).contains(&micros).then_some(micros)
}

/// The microseconds of whole seconds; none beyond the years that can be written.
#[must_use]
pub fn of_seconds(seconds: i64) -> Option<i64> {
    seconds.checked_mul(1_000_000).filter(|micros| (FIRST..=LAST).contains(micros))
}

/// The days since 1970 of a date such as `2026-01-31`; none if it is no day of a year of four digits.
#[must_use]
pub fn read_day(text: &str) -> Option<i32> {
    let plain = text.len() == 10 && text.is_ascii();
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| plain)?;
    let since = date.signed_duration_since(DateTime::UNIX_EPOCH.date_naive()).num_days();
    i32::try_from(since).ok().filter(|day| (FIRST_DAY..=LAST_DAY).contains(day))
}

/// Writes a day, without quotes. One that has no year of four digits is written with its sign.
pub fn write_day(out: &mut Vec<u8>, day: i32) {
    let (year, month, of_month) = civil(day.into());
    if (0..=9999).contains(&year) {
        digits::<4>(out, year);
    } else {
        out.extend_from_slice(format!("{year:+}").as_bytes());
    }
    out.push(b'-');
    digits::<2>(out, month);
    out.push(b'-');
    digits::<2>(out, of_month);
}

fn naive(text: &str) -> Option<NaiveDateTime> {
    let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
    forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

/// Writes a moment, without quotes.
pub fn write(out: &mut Vec<u8>, micros: i64) {
    let seconds = micros.div_euclid(1_000_000);
    let behind = micros.rem_euclid(1_000_000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    if !(0..=9999).contains(&year) {
        // Only something that was never checked comes here; it is written, if in another form.
        let moment = DateTime::<Utc>::from_timestamp_micros(micros).unwrap_or_default();
        out.extend_from_slice(moment.to_rfc3339().as_bytes());
        return;
    }
    digits::<4>(out, year);
    out.push(b'-');
    digits::<2>(out, month);
    out.push(b'-');
    digits::<2>(out, day);
    out.push(b'T');
    digits::<2>(out, rest / 3600);
    out.push(b':');
    digits::<2>(out, rest / 60 % 60);
    out.push(b':');
    digits::<2>(out, rest % 60);
    if behind % 1000 != 0 {
        out.push(b'.');
        digits::<6>(out, behind);
    } else if behind != 0 {
        out.push(b'.');
        digits::<3>(out, behind / 1000);
    }
    out.push(b'Z');
}

/// The last `N` digits of a number that is not negative.
fn digits<const N: usize>(out: &mut Vec<u8>, mut number: i64) {
    let mut text = [b'0'; N];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    out.extend_from_slice(&text);
}

/// Year, month and day of a day counted from 1970, in the Gregorian calendar: eras of 400 years
/// that begin in March, so that the day that comes and goes is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use chrono::SecondsFormat;
    use proptest::prelude::*;

    use super::*;

    fn text(micros: i64) -> String {
        let mut out = Vec::new();
        write(&mut out, micros);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn as_many_digits_as_are_needed() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (1_000, "1970-01-01T00:00:00.001Z"),
            (1_001, "1970-01-01T00:00:00.001001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (FIRST, "0001-01-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59.999999Z"),
        ];
        for (micros, expected) in table {
            assert_eq!(text(micros), expected);
        }
    }

    #[test]
    fn what_others_write_is_read() {
        let table = [
            ("2026-03-30T00:00:00Z", Some(1_774_828_800_000_000)),
            ("2026-03-30T04:00:00+04:00", Some(1_774_828_800_000_000)),
            ("2026-03-30T00:00:00", Some(1_774_828_800_000_000)),
            ("2026-03-30 00:00:00.5", Some(1_774_828_800_500_000)),
            ("2026-03-30T00:00:00.123456789Z", Some(1_774_828_800_123_456)),
            ("2026-03-30", None),
            ("soon", None),
            ("10000-01-01T00:00:00Z", None),
            ("", None),
        ];
        for (given, expected) in table {
            assert_eq!(read(given), expected, "{given}");
        }
    }

    #[test]
    fn days_are_dates() {
        let text = |day: i32| {
            let mut out = Vec::new();
            write_day(&mut out, day);
            String::from_utf8(out).unwrap()
        };
        for (day, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (FIRST_DAY, "0001-01-01"),
            (LAST_DAY, "9999-12-31"),
        ] {
            assert_eq!(text(day), expected);
            assert_eq!(read_day(expected), Some(day));
        }
        assert_eq!(text(LAST_DAY + 1), "+10000-01-01");
        for wrong in ["2026-02-30", "2026-2-3", "26-02-03", "2026-02-03T00:00:00Z", "", "today"] {
            assert_eq!(read_day(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_day_is_read_back(day in FIRST_DAY..=LAST_DAY) {
            let mut out = Vec::new();
            write_day(&mut out, day);
            prop_assert_eq!(read_day(std::str::from_utf8(&out).unwrap()), Some(day));
        }

        #[test]
        fn as_the_library_writes_it(micros in FIRST..=LAST) {
            let moment = DateTime::<Utc>::from_timestamp_micros(micros).unwrap();
            prop_assert_eq!(text(micros), moment.to_rfc3339_opts(SecondsFormat::AutoSi, true));
            prop_assert_eq!(read(&text(micros)), Some(micros));
        }
    }
}
