//! Decimals as text: exact, or not at all.

/// The value of a text such as `-12.50` in the smallest steps of decimals of so many digits, so many of
/// them behind the point. None if it is no such number, or would have to be rounded.
#[must_use]
pub fn steps(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (whole, behind) = text.split_once('.').unwrap_or((text, ""));
    let scale = usize::try_from(scale).ok()?;
    let plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    let kept = behind.trim_end_matches('0');
    if unsigned.is_empty() || !plain(unsigned) || !plain(behind) || kept.len() > scale {
        return None;
    }
    let steps: i128 = format!("{whole}{kept:0<scale$}").parse().ok()?;
    (steps.unsigned_abs() < 10_u128.checked_pow(precision.into())?).then_some(steps)
}

/// The counts of digits that `decimal(10,2)` tells: all, and those behind the point. At most 38, which is
/// what sixteen bytes hold.
#[must_use]
pub fn named(text: &str) -> Option<(u8, i8)> {
    let inner = text.strip_prefix("decimal(")?.strip_suffix(')')?;
    let (precision, scale) = inner.split_once(',')?;
    let (precision, scale) = (precision.trim(), scale.trim());
    // Numbers may have a sign elsewhere.
    if ![precision, scale].iter().all(|text| text.bytes().all(|digit| digit.is_ascii_digit())) {
        return None;
    }
    let (precision, scale): (u8, i8) = (precision.parse().ok()?, scale.parse().ok()?);
    let fits = (1..=38).contains(&precision) && scale >= 0 && scale.unsigned_abs() <= precision;
    fits.then_some((precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rounded() {
        for (text, expected) in [
            ("12.50", Some(1250)),
            ("12.5000", Some(1250)),
            ("-0.01", Some(-1)),
            ("7", Some(700)),
            ("7.", Some(700)),
            ("999.99", Some(99_999)),
            ("12.505", None),
            ("1000", None),
            ("1e2", None),
            (".5", None),
            ("--1", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(steps(text, 5, 2), expected, "{text}");
        }
        assert_eq!(steps(&"9".repeat(38), 38, 0), Some(10_i128.pow(38) - 1));
        assert_eq!(steps(&"9".repeat(60), 38, 0), None);
        assert_eq!(named("decimal(10, 2)"), Some((10, 2)));
        for wrong in [
            "decimal(39,0)",
            "decimal(2,3)",
            "decimal(5)",
            "decimal(5,-1)",
            "decimal(+5,2)",
            "decimal(,)",
            "money",
        ] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
