//! Sums of floats without rounding: a wide whole number that grows where it is needed.
//!
//! A float is a whole number times a power of two, and so is any sum of them. Kept whole, a sum is
//! the same whatever was added first, and is rounded once, when it is asked for.

use super::bytes::{Reader, put, put_signed};

/// How many numbers may be added before digits are carried: a digit has 32 bits and a place 63.
const CARRY_AFTER: u32 = 1 << 30;

const NAN: u8 = 1;
const UP: u8 = 2;
const DOWN: u8 = 4;
const NEGATIVE: u8 = 8;

/// A sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Exact {
    /// Places of 32 bits each, the lowest first, with what is not carried yet.
    places: Vec<i64>,
    /// Which power of 2^32 the first place counts.
    low: i32,
    added: u32,
    /// What is no number, and what has no end.
    odd: u8,
}

/// The whole number and power of two that a finite float is.
fn parts(value: f64) -> (u64, i32, bool) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let exponent = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    let (whole, power) =
        if exponent == 0 { (fraction, -1074) } else { (fraction | (1 << 52), exponent - 1075) };
    (whole, power, value.is_sign_negative())
}

/// Digits of 32 bits, the lowest first, none of them a zero at either end.
struct Canonical {
    negative: bool,
    low: i32,
    digits: Vec<u32>,
}

impl Exact {
    pub(super) fn add(&mut self, value: f64) {
        if !self.note(value) {
            let (whole, power, negative) = parts(value);
            self.put(whole, power, negative);
        }
    }

    /// Adds the square of a number.
    pub(super) fn add_square(&mut self, value: f64) {
        if self.note(value.abs()) {
            return;
        }
        let (whole, power, _) = parts(value);
        let square = u128::from(whole) * u128::from(whole);
        #[allow(clippy::cast_possible_truncation, reason = "the lower half, then the upper")]
        let (lower, upper) = (square as u64, (square >> 64) as u64);
        self.put(lower, 2 * power, false);
        self.put(upper, 2 * power + 64, false);
    }

    /// Takes down what has no digits.
    fn note(&mut self, value: f64) -> bool {
        self.odd |= match value {
            value if value.is_nan() => NAN,
            f64::INFINITY => UP,
            f64::NEG_INFINITY => DOWN,
            _ => return false,
        };
        true
    }

    fn put(&mut self, whole: u64, power: i32, negative: bool) {
        if whole == 0 {
            return;
        }
        let place = power.div_euclid(32);
        let shifted = u128::from(whole) << power.rem_euclid(32);
        for (at, shift) in (place..).zip([0, 32, 64]) {
            let digit = i64::try_from((shifted >> shift) & 0xffff_ffff).unwrap_or(0);
            if digit != 0 {
                *self.place(at) += if negative { -digit } else { digit };
            }
        }
        self.added += 1;
        if self.added >= CARRY_AFTER {
            self.carry();
        }
    }

    /// A place, made if it is not there.
    fn place(&mut self, at: i32) -> &mut i64 {
        if self.places.is_empty() {
            self.low = at;
        }
        while at < self.low {
            self.places.insert(0, 0);
            self.low -= 1;
        }
        let index = usize::try_from(at - self.low).unwrap_or(0);
        if index >= self.places.len() {
            self.places.resize(index + 1, 0);
        }
        &mut self.places[index]
    }

    fn carry(&mut self) {
        let mut carried = 0;
        for place in &mut self.places {
            let sum = *place + carried;
            carried = sum >> 32;
            *place = sum & 0xffff_ffff;
        }
        if carried != 0 {
            // At most one more place, which keeps the sign.
            self.places.push(carried);
        }
        self.added = 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.odd |= other.odd;
        let mut other = other.clone();
        other.carry();
        for (at, digit) in (other.low..).zip(&other.places) {
            if *digit != 0 {
                *self.place(at) += digit;
            }
        }
        // What was merged is of one digit in each place, but for the last.
        self.added += 2;
        if self.added >= CARRY_AFTER {
            self.carry();
        }
    }

    fn canonical(&self) -> Canonical {
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.places.last().is_some_and(|last| *last < 0);
        if negative {
            for place in &mut sum.places {
                *place = -*place;
            }
            sum.carry();
        }
        let digits = sum.places.iter().map(|digit| u32::try_from(*digit).unwrap_or(u32::MAX));
        let mut digits: Vec<u32> = digits.collect();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        let low = if digits.is_empty() { 0 } else { sum.low + i32::try_from(zeros).unwrap_or(0) };
        Canonical { negative: negative && !digits.is_empty(), low, digits }
    }

    /// The nearest float; of two, the even one.
    pub(super) fn value(&self) -> f64 {
        match (self.odd & NAN != 0, self.odd & UP != 0, self.odd & DOWN != 0) {
            (true, ..) | (_, true, true) => f64::NAN,
            (_, true, _) => f64::INFINITY,
            (_, _, true) => f64::NEG_INFINITY,
            _ => self.canonical().value(),
        }
    }

    /// The variance of `count` numbers of which this is the sum and `squares` that of the squares.
    pub(super) fn variance(&self, squares: &Self, count: u64) -> f64 {
        if self.odd != 0 {
            return f64::NAN;
        }
        // count * squares - sum * sum, whole, and so without a loss where they are nearly equal.
        let mut spread = Self::default();
        let squares = squares.canonical();
        for (at, digit) in (squares.low..).zip(&squares.digits) {
            let (lower, upper) = (count & 0xffff_ffff, count >> 32);
            spread.put(u64::from(*digit) * lower, 32 * at, false);
            spread.put(u64::from(*digit) * upper, 32 * (at + 1), false);
        }
        let sum = self.canonical();
        for (at, one) in (sum.low..).zip(&sum.digits) {
            for (to, other) in (sum.low..).zip(&sum.digits) {
                spread.put(u64::from(*one) * u64::from(*other), 32 * (at + to), true);
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "the nearest float is wanted")]
        let pairs = count as f64 * (count - 1) as f64;
        spread.value() / pairs
    }

    pub(super) fn heap(&self) -> usize {
        self.places.capacity() * 8
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Canonical { negative, low, digits } = self.canonical();
        out.push(self.odd | if negative { NEGATIVE } else { 0 });
        put_signed(out, low.into());
        put(out, digits.len() as u128);
        for digit in digits {
            out.extend_from_slice(&digit.to_le_bytes());
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let flags = from.byte()?;
        let low: i32 = from.signed()?.try_into().ok()?;
        // Squares of the smallest and the largest floats lie well within.
        if !(-200..=200).contains(&low) {
            return None;
        }
        let length = from.length()?;
        let mut places = Vec::with_capacity(length);
        for _ in 0..length {
            let digit = i64::from(u32::from_le_bytes(from.array()?));
            places.push(if flags & NEGATIVE != 0 { -digit } else { digit });
        }
        Some(Self { places, low, added: 1, odd: flags & (NAN | UP | DOWN) })
    }
}

impl Canonical {
    /// Whether the bit that counts 2^power is set.
    fn bit(&self, power: i32) -> bool {
        let place = power.div_euclid(32) - self.low;
        let digit = usize::try_from(place).ok().and_then(|place| self.digits.get(place));
        digit.is_some_and(|digit| digit >> power.rem_euclid(32) & 1 == 1)
    }

    fn value(&self) -> f64 {
        let Some(last) = self.digits.last() else { return 0.0 };
        let places = i32::try_from(self.digits.len()).unwrap_or(i32::MAX);
        let high = |digit: u32| 31 - i32::try_from(digit.leading_zeros()).unwrap_or(0);
        let top = 32 * (self.low + places - 1) + high(*last);
        let sign = if self.negative { -1.0 } else { 1.0 };
        if top > 1023 {
            return sign * f64::INFINITY;
        }
        // The last power that a float of this size can tell.
        let end = (top - 52).max(-1074);
        let mut whole = 0_u64;
        for power in (end..=top).rev() {
            whole = whole << 1 | u64::from(self.bit(power));
        }
        let rest = || {
            let below = (end - 1).div_euclid(32) - self.low;
            let Ok(below) = usize::try_from(below) else { return false };
            let within = self.digits.get(below).copied().unwrap_or(0);
            let mask = (1_u32 << (end - 1).rem_euclid(32)) - 1;
            within & mask != 0 || self.digits.iter().take(below).any(|digit| *digit != 0)
        };
        if self.bit(end - 1) && (whole & 1 == 1 || rest()) {
            whole += 1;
        }
        #[allow(clippy::cast_precision_loss, reason = "at most 2^53")]
        let whole = whole as f64;
        sign * whole * power_of_two(end)
    }
}

/// From -1074 on, up to 971.
fn power_of_two(power: i32) -> f64 {
    let bits = |number: i32| u64::try_from(number).unwrap_or(0);
    if power >= -1022 {
        f64::from_bits(bits(power + 1023) << 52)
    } else {
        f64::from_bits(1 << bits(power + 1074))
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is exact is equal")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(values: &[f64]) -> Exact {
        let mut sum = Exact::default();
        for value in values {
            sum.add(*value);
        }
        sum
    }

    fn bytes(sum: &Exact) -> Vec<u8> {
        let mut out = Vec::new();
        sum.write(&mut out);
        out
    }

    #[test]
    fn sums_are_rounded_once() {
        let table: [(&[f64], f64); 9] = [
            (&[], 0.0),
            (&[0.1; 10], 1.0),
            (&[1e300, 1.0, -1e300], 1.0),
            (&[1e308, 1e308, -1e308], 1e308),
            (&[f64::MAX, f64::MAX], f64::INFINITY),
            (&[5e-324, 5e-324], 1e-323),
            (&[1.0, f64::EPSILON / 2.0], 1.0),
            (&[1.0, f64::EPSILON / 2.0, 5e-324], 1.0 + f64::EPSILON),
            (&[-2.5, 1.0], -1.5),
        ];
        for (values, expected) in table {
            assert_eq!(sum(values).value(), expected, "{values:?}");
        }
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).value().is_nan());
        assert_eq!(sum(&[f64::INFINITY, 1.0]).value(), f64::INFINITY);
    }

    #[test]
    fn nearly_equal_numbers_have_a_variance() {
        let values = [1e9, 1e9 + 1.0, 1e9 + 2.0];
        let mut squares = Exact::default();
        for value in &values {
            squares.add_square(*value);
        }
        assert_eq!(sum(&values).variance(&squares, 3), 1.0);
    }

    proptest! {
        #[test]
        fn order_and_batches_do_not_matter(
            values in prop::collection::vec(any::<f64>(), 0..40), cut in 0_usize..40, turn in 0_usize..40
        ) {
            let whole = sum(&values);
            let mut turned = values.clone();
            turned.rotate_left(turn.min(values.len()));
            turned.reverse();
            let cut = cut.min(values.len());
            let mut merged = sum(&turned[..cut]);
            merged.merge(&sum(&turned[cut..]));
            prop_assert_eq!(bytes(&whole), bytes(&merged));
            prop_assert_eq!(whole.value().to_bits(), merged.value().to_bits());
            let kept = bytes(&whole);
            let read = Exact::read(&mut Reader(&kept)).unwrap();
            prop_assert_eq!(bytes(&read), kept);
        }

        #[test]
        fn one_number_is_itself(value in any::<f64>()) {
            let found = sum(&[value]).value();
            prop_assert!(found == value || (found.is_nan() && value.is_nan()), "{}", value);
        }

        #[test]
        fn whole_numbers_add_up(values in prop::collection::vec(-1_000_000_000_i64..1_000_000_000, 0..50)) {
            #[allow(clippy::cast_precision_loss)]
            let floats: Vec<f64> = values.iter().map(|value| *value as f64).collect();
            #[allow(clippy::cast_precision_loss)]
            let expected = values.iter().sum::<i64>() as f64;
            prop_assert_eq!(sum(&floats).value(), expected);
        }
    }
}
