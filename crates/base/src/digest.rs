//! A digest of a set: of what it holds, not of the order in which that was read. Two sides that
//! keep the same things in different tables compare these.
//!
//! It tells apart what went wrong by accident. It is no proof against someone who wants two sets
//! to look alike; contents that need that have a SHA-256.

use std::fmt;

/// How many members there are, and a sum over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetDigest {
    count: u64,
    sum: u64,
}

impl SetDigest {
    /// The digest of pairs of texts.
    #[must_use]
    pub fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut digest = Self::default();
        for (key, value) in pairs {
            digest.add([text(key), text(value)]);
        }
        digest
    }

    /// Adds one point of a series. Values are taken in one form: see [`plain_value`].
    pub fn add_point(&mut self, series: u64, timestamp: i64, step: i64, value: f64) {
        let bits = plain_value(value).to_bits();
        self.add([series, timestamp.cast_unsigned(), step.cast_unsigned(), bits]);
    }

    pub fn add<const N: usize>(&mut self, member: [u64; N]) {
        self.count += 1;
        let hash = member.into_iter().fold(N as u64, |hash, part| mixed(hash ^ part));
        self.sum = self.sum.wrapping_add(hash);
    }

    /// Adds the members of another set.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }
}

/// The count and the sum: `12-0123456789abcdef`.
impl fmt::Display for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.count, self.sum)
    }
}

/// A number for a text.
#[must_use]
pub fn text(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    mixed(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A value as databases keep it: one NaN, one zero, and the largest number in place of infinity.
#[must_use]
pub const fn plain_value(value: f64) -> f64 {
    if value.is_nan() {
        f64::NAN
    } else if value == f64::INFINITY {
        f64::MAX
    } else if value == f64::NEG_INFINITY {
        f64::MIN
    } else {
        value + 0.0
    }
}

/// Spreads every bit over all others (the finaliser of `SplitMix64`).
const fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let all = SetDigest::of_pairs([("a", "1"), ("b", "2")]);
        assert_eq!(all, SetDigest::of_pairs([("b", "2"), ("a", "1")]));
        for other in [
            SetDigest::of_pairs([("a", "2"), ("b", "1")]),
            SetDigest::of_pairs([("a", "1"), ("b", "2"), ("b", "2")]),
            SetDigest::of_pairs([("a", "1")]),
            SetDigest::of_pairs([("a1", ""), ("b2", "")]),
        ] {
            assert_ne!(all, other);
        }
        let mut merged = SetDigest::of_pairs([("a", "1")]);
        merged.merge(SetDigest::of_pairs([("b", "2")]));
        assert_eq!(merged, all);
    }

    #[test]
    fn a_point_is_all_of_its_parts() {
        let point = |series, timestamp, step, value| {
            let mut digest = SetDigest::default();
            digest.add_point(series, timestamp, step, value);
            digest
        };
        assert_eq!(point(1, 2, 3, -0.0), point(1, 2, 3, 0.0));
        assert_eq!(point(1, 2, 3, f64::INFINITY), point(1, 2, 3, f64::MAX));
        for other in [point(2, 1, 3, 0.5), point(1, 3, 2, 0.5), point(1, 2, 3, f64::NAN)] {
            assert_ne!(point(1, 2, 3, 0.5), other);
        }
    }
}
