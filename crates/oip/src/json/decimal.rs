//! Numbers as nearly all of them are written, `-1.2345678`: read in one pass, without the care that
//! long ones need.
//!
//! What must hold: whatever is read here is the very number that the standard library reads.

/// The powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// The most digits that fit into 64 bits whatever they are.
const MAX_DIGITS: usize = 19;
/// Up to here a double holds every whole number.
const EXACT: u64 = 1 << 53;

/// A float made of a double that is the nearest to what was written.
pub(crate) trait Float: Sized {
    /// None if it cannot be told from the double which float is the nearest.
    fn nearest(double: f64) -> Option<Self>;
}

impl Float for f64 {
    fn nearest(double: f64) -> Option<Self> {
        Some(double)
    }
}

impl Float for f32 {
    /// Rounded twice, a number comes out wrong only if the first rounding led right between two
    /// floats. Doubles made here are far from the ends of what a float can hold.
    #[allow(clippy::cast_possible_truncation, reason = "a float is wanted")]
    fn nearest(double: f64) -> Option<Self> {
        const BEHIND: u64 = (1 << 29) - 1;
        const HALF: u64 = 1 << 28;
        (double.to_bits() & BEHIND != HALF).then_some(double as Self)
    }
}

/// The number at the beginning of a text, and how long it is; none if it is not written as JSON
/// wants it, or not in a way that is read here.
#[inline]
pub(crate) fn read<T: Float>(text: &[u8]) -> Option<(T, usize)> {
    let mut at = usize::from(text.first() == Some(&b'-'));
    let (negative, start) = (at == 1, at);
    let mut digits = 0_u64;
    // Few stand before the point, and many behind it.
    one_by_one(text, &mut at, &mut digits);
    let whole = at - start;
    if whole == 0 || (whole > 1 && text[start] == b'0') {
        return None;
    }
    let mut behind = 0;
    if text.get(at) == Some(&b'.') {
        at += 1;
        let point = at;
        eight_by_eight(text, &mut at, &mut digits);
        behind = at - point;
        if behind == 0 {
            return None;
        }
    }
    if whole + behind > MAX_DIGITS || digits > EXACT || matches!(text.get(at), Some(b'e' | b'E')) {
        return None;
    }
    // Both sides are exact, so the quotient is rounded once, to the nearest.
    #[allow(clippy::cast_precision_loss, reason = "at most 2^53")]
    let size = digits as f64 / POWERS[behind];
    // The sign is a bit, not a branch: from number to number nobody can foresee it.
    let number = T::nearest(f64::from_bits(size.to_bits() | u64::from(negative) << 63))?;
    Some((number, at))
}

/// Adds the digits at a place to those before them. More than fit into 64 bits make some number.
#[inline]
fn one_by_one(text: &[u8], at: &mut usize, digits: &mut u64) {
    while let Some(digit) = text.get(*at).map(|byte| byte.wrapping_sub(b'0')).filter(|&d| d < 10) {
        *digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
        *at += 1;
    }
}

/// The same, eight bytes in one word.
#[inline]
fn eight_by_eight(text: &[u8], at: &mut usize, digits: &mut u64) {
    /// Ten to the number of digits that were found.
    const SHIFTS: [u64; 9] =
        [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    const ONES: u64 = 0x0101_0101_0101_0101;
    while let Some(word) = text.get(*at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'0'));
        // The high bit of each byte that is over nine; what lies behind the first may be wrong.
        let others = (word.wrapping_add(ONES * (0x7f - 9)) | word) & (ONES * 0x80);
        let found = others.trailing_zeros() as usize / 8;
        if found == 0 {
            return;
        }
        // Zeros before them, and what lies behind them falls out.
        *digits = digits.wrapping_mul(SHIFTS[found]).wrapping_add(value(word << (64 - 8 * found)));
        *at += found;
        if found < 8 {
            return;
        }
    }
    one_by_one(text, at, digits);
}

/// Eight digits in a word, the first in the lowest byte: neighbours are put together three times.
#[inline]
fn value(word: u64) -> u64 {
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    let first = (pairs & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let second = ((pairs >> 16) & PAIRS).wrapping_mul(1 + (10_000 << 32));
    first.wrapping_add(second) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is read is what the standard library reads; says how many were.
    fn agree<T: Float + std::str::FromStr<Err: std::fmt::Debug> + Into<f64>>(
        texts: &[String],
    ) -> usize {
        let mut count = 0;
        for text in texts {
            if let Some((number, length)) = read::<T>(text.as_bytes()) {
                let (ours, theirs): (f64, f64) = (number.into(), text.parse::<T>().unwrap().into());
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{text}");
                assert_eq!(length, text.len(), "{text}");
                // With others behind it, as in a list.
                let listed = read::<T>(format!("{text},8.25,99,12345678]").as_bytes());
                let (again, length) =
                    listed.map(|(number, length)| (number.into(), length)).unwrap();
                assert_eq!((again.to_bits(), length), (ours.to_bits(), text.len()), "{text}");
                count += 1;
            }
        }
        count
    }

    #[test]
    fn every_number_is_the_one_that_was_written() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 11
        };
        let mut texts: Vec<String> = Vec::new();
        for _ in 0..200_000 {
            let (digits, places) = (next() >> (next() % 53), next() % 20);
            let sign = if next() % 2 == 0 { "-" } else { "" };
            let places = usize::try_from(places).unwrap();
            let text = format!("{digits:0width$}", width = places + 1);
            let (whole, behind) = text.split_at(text.len() - places);
            let point = if behind.is_empty() { "" } else { "." };
            texts.push(format!("{sign}{whole}{point}{behind}"));
        }
        // Right between two floats, and beside that.
        for middle in [16_777_217_u64, 16_777_219, 33_554_434, 1_073_741_888] {
            texts.extend([middle - 1, middle, middle + 1].map(|number| number.to_string()));
            texts.extend(["0", "00000001"].map(|behind| format!("{middle}.{behind}")));
        }
        assert!(agree::<f64>(&texts) > texts.len() / 2);
        assert!(agree::<f32>(&texts) > texts.len() / 2);
        assert!(read::<f32>(b"16777217").is_none(), "which of two is nearest is for others to say");
    }

    #[test]
    fn what_json_does_not_know_is_not_read() {
        for text in ["", "-", ".5", "5.", "01", "-01.5", "+1", "NaN", "1e5", "1.5E-3"] {
            assert!(read::<f64>(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(read::<f64>(b"12.5,"), Some((12.5, 4)));
        // Bytes beside the digits, and some that only look like them with a bit less.
        for odd in [b'/', b':', 0xb5, 0xff, b' ', 0x00, b'e' - 1] {
            let text = [&b"0.123"[..], &[odd; 8]].concat();
            assert_eq!(read::<f64>(&text), Some((0.123, 5)), "{odd}");
        }
        assert_eq!(read::<f32>(b"-0.0]").map(|(zero, _)| zero.to_bits()), Some(1 << 31));
    }
}
