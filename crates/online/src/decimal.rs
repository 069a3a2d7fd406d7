//! Decimals: numbers with a fixed count of digits behind the point, exact. They are kept as whole
//! numbers of their smallest step, and told as text.
//!
//! Must hold: nothing is ever rounded. A text with more digits than there is room for is none.

use std::fmt;

/// The most digits: what fits into sixteen bytes, and what Arrow, Delta and Iceberg have.
pub const MAX_PRECISION: u8 = 38;
/// The longest text that is looked at.
const MAX_TEXT: usize = 128;

/// How many digits a decimal has in all, and how many of them behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Decimal {
    precision: u8,
    scale: u8,
}

impl Decimal {
    /// None if there are no such decimals.
    #[must_use]
    pub const fn new(precision: u8, scale: u8) -> Option<Self> {
        if precision == 0 || precision > MAX_PRECISION || scale > precision {
            return None;
        }
        Some(Self { precision, scale })
    }

    #[must_use]
    pub const fn precision(self) -> u8 {
        self.precision
    }

    #[must_use]
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// `decimal(10,2)`.
    pub(crate) fn named(text: &str) -> Option<Self> {
        let inner = text.strip_prefix("decimal(")?.strip_suffix(')')?;
        let (precision, scale) = inner.split_once(',')?;
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let (precision, scale) = (precision.trim(), scale.trim());
        if !plain(precision) || !plain(scale) {
            return None;
        }
        Self::new(precision.parse().ok()?, scale.parse().ok()?)
    }

    /// Whether so many steps have no more digits than there is room for.
    #[must_use]
    pub fn holds(self, steps: i128) -> bool {
        steps.unsigned_abs() < 10_u128.pow(u32::from(self.precision))
    }

    /// The steps that a text tells; none if it tells no number, or one that would have to be rounded.
    #[must_use]
    pub fn read(self, text: &str) -> Option<i128> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (number, exponent) = match rest.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, behind) = number.split_once('.').unwrap_or((number, ""));
        let digits = [whole, behind].concat();
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let kept = digits.trim_end_matches('0');
        if kept.is_empty() {
            return Some(0);
        }
        // By how many places the digits that are kept stand before the last one there is room for.
        let dropped = i32::try_from(digits.len() - kept.len()).ok()?;
        let behind = i32::try_from(behind.len()).ok()?;
        let shift = i32::from(self.scale).checked_add(exponent)?.checked_sub(behind - dropped)?;
        let factor = 10_i128.checked_pow(u32::try_from(shift).ok()?)?;
        let steps = kept.parse::<i128>().ok()?.checked_mul(factor)?;
        let steps = if negative { -steps } else { steps };
        self.holds(steps).then_some(steps)
    }

    /// Writes a number of steps, with all its digits behind the point.
    pub fn write(self, out: &mut Vec<u8>, steps: i128) {
        if steps < 0 {
            out.push(b'-');
        }
        let scale = usize::from(self.scale);
        let digits = format!("{:0>width$}", steps.unsigned_abs(), width = scale + 1);
        let (whole, behind) = digits.split_at(digits.len() - scale);
        out.extend_from_slice(whole.as_bytes());
        if scale > 0 {
            out.push(b'.');
            out.extend_from_slice(behind.as_bytes());
        }
    }

    /// The same as a text of its own.
    #[must_use]
    pub fn shown(self, steps: i128) -> String {
        let mut out = Vec::new();
        self.write(&mut out, steps);
        String::from_utf8_lossy(&out).into_owned()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decimal({},{})", self.precision, self.scale)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_rounded() {
        let money = Decimal::new(5, 2).unwrap();
        for (text, expected) in [
            ("12.5", Some("12.50")),
            ("12.50", Some("12.50")),
            ("12.5000000", Some("12.50")),
            ("-0.01", Some("-0.01")),
            ("+7", Some("7.00")),
            ("0", Some("0.00")),
            ("-0.000", Some("0.00")),
            ("1e2", Some("100.00")),
            ("1250e-2", Some("12.50")),
            (".5", Some("0.50")),
            ("999.99", Some("999.99")),
            ("1000", None),
            ("0.001", None),
            ("1e-3", None),
            ("1e999999999", None),
            ("", None),
            ("-", None),
            (".", None),
            ("1.2.3", None),
            ("1,5", None),
            ("NaN", None),
            ("1 ", None),
            ("0x1", None),
        ] {
            let read = money.read(text).map(|steps| money.shown(steps));
            assert_eq!(read.as_deref(), expected, "{text}");
        }
        assert_eq!(Decimal::named("decimal(38, 0)"), Decimal::new(38, 0));
        for wrong in [
            "decimal",
            "decimal()",
            "decimal(0,0)",
            "decimal(39,1)",
            "decimal(2,3)",
            "decimal(5,-1)",
            "decimal(+5,1)",
            "decimal(5)",
        ] {
            assert_eq!(Decimal::named(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            (precision, scale) in (1_u8..=38).prop_flat_map(|precision| (Just(precision), 0..=precision)),
            number: i128,
        ) {
            let kind = Decimal::new(precision, scale).unwrap();
            let steps = number % 10_i128.pow(u32::from(precision));
            prop_assert!(kind.holds(steps));
            prop_assert_eq!(kind.read(&kind.shown(steps)), Some(steps));
            prop_assert_eq!(Decimal::named(&kind.to_string()), Some(kind));
        }

        #[test]
        fn anything_is_read_or_not(text: String) {
            let _ = Decimal::new(38, 10).unwrap().read(&text);
        }
    }
}
