//! How numbers are distributed, within one hundredth, in bounded memory and mergeable.
//!
//! Numbers go into buckets whose borders grow by a constant factor, so that every quantile comes
//! out within 1 % of the number that stands there. Merging adds counts: sketches of parts, in any
//! order, are the sketch of the whole.
//!
//! Numbers nearer to zero than a billionth count as zero, those beyond 10^15 as 10^15: that bounds
//! the buckets (2,764 for each sign). What is not finite is counted apart.

use std::collections::BTreeMap;

use falaj_base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::version::Version;

/// The ratio of a bucket's borders: (1 + 0.01) / (1 - 0.01).
const GROWTH: f64 = 1.01 / 0.99;
const SMALLEST: f64 = 1e-9;
const LARGEST: f64 = 1e15;

type Buckets = BTreeMap<i32, u64>;

/// Counts of numbers by bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Sketch {
    positive: Buckets,
    negative: Buckets,
    zero: u64,
    count: u64,
    odd: u64,
    least: f64,
    most: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: Version<1>,
    #[serde(default, skip_serializing_if = "Buckets::is_empty")]
    positive: Buckets,
    #[serde(default, skip_serializing_if = "Buckets::is_empty")]
    negative: Buckets,
    zero: u64,
    odd: u64,
    least: f64,
    most: f64,
}

impl TryFrom<Stored> for Sketch {
    type Error = Error;
    fn try_from(stored: Stored) -> Result<Self> {
        let refused = |what: &str| Error::invalid("sketch", what, "a sketch as it was written");
        let Stored { version: _, positive, negative, zero, odd, least, most } = stored;
        let within = bucket(SMALLEST)..=bucket(LARGEST);
        let mut count = zero;
        for (place, &many) in positive.iter().chain(&negative) {
            if !within.contains(place) || many == 0 {
                return Err(refused("a bucket that cannot be"));
            }
            count = count.checked_add(many).ok_or_else(|| refused("too many numbers"))?;
        }
        if !(least <= most && least >= f64::MIN && most <= f64::MAX) {
            return Err(refused("bounds that cannot be"));
        }
        Ok(Self { positive, negative, zero, count, odd, least, most })
    }
}

impl From<Sketch> for Stored {
    fn from(sketch: Sketch) -> Self {
        let Sketch { positive, negative, zero, count: _, odd, least, most } = sketch;
        Self { version: Version, positive, negative, zero, odd, least, most }
    }
}

impl Sketch {
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut sketch = Self::default();
        for number in numbers {
            sketch.record(number);
        }
        sketch
    }

    pub fn record(&mut self, number: f64) {
        if !number.is_finite() {
            self.odd = self.odd.saturating_add(1);
            return;
        }
        self.widen(number, number);
        self.count = self.count.saturating_add(1);
        let size = number.abs();
        let counted = if size < SMALLEST {
            &mut self.zero
        } else if number > 0.0 {
            self.positive.entry(bucket(size)).or_default()
        } else {
            self.negative.entry(bucket(size)).or_default()
        };
        *counted = counted.saturating_add(1);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count > 0 {
            self.widen(other.least, other.most);
        }
        for (into, from) in
            [(&mut self.positive, &other.positive), (&mut self.negative, &other.negative)]
        {
            for (&place, &many) in from {
                let counted = into.entry(place).or_default();
                *counted = counted.saturating_add(many);
            }
        }
        self.zero = self.zero.saturating_add(other.zero);
        self.count = self.count.saturating_add(other.count);
        self.odd = self.odd.saturating_add(other.odd);
    }

    /// How many finite numbers there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many were not finite; they are in no quantile.
    #[must_use]
    pub fn odd(&self) -> u64 {
        self.odd
    }

    /// The number that the share `q` of all numbers lies below, within 1 %.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.count.checked_sub(1)?;
        let wanted = (q.clamp(0.0, 1.0) * last as f64).floor();
        let mut seen = 0_u64;
        for (place, many) in self.ordered() {
            seen = seen.saturating_add(many);
            if seen as f64 > wanted {
                return Some(number(place).clamp(self.least, self.most));
            }
        }
        Some(self.most)
    }

    /// How many numbers lie in buckets above that of `border`.
    #[must_use]
    pub fn above(&self, border: f64) -> u64 {
        let border = place(border);
        let counts = self.ordered().filter(|&(place, _)| place > border);
        counts.fold(0, |sum, (_, many)| sum.saturating_add(many))
    }

    /// The buckets from the least up, and how many numbers each holds.
    fn ordered(&self) -> impl Iterator<Item = (Place, u64)> {
        let below = self.negative.iter().rev().map(|(&bucket, &many)| ((-1, -bucket), many));
        let zero = Some(((0, 0), self.zero)).filter(|&(_, many)| many > 0);
        let above = self.positive.iter().map(|(&bucket, &many)| ((1, bucket), many));
        below.chain(zero).chain(above)
    }

    fn widen(&mut self, least: f64, most: f64) {
        let first = self.count == 0;
        self.least = if first { least } else { self.least.min(least) };
        self.most = if first { most } else { self.most.max(most) };
    }
}

/// The bucket of a size: the power of the growth that is the next at or above it.
#[allow(clippy::cast_possible_truncation, reason = "sizes are kept within a few thousand buckets")]
fn bucket(size: f64) -> i32 {
    (size.clamp(SMALLEST, LARGEST).ln() / GROWTH.ln()).ceil() as i32
}

/// Buckets of both signs in one order: the sign, then the bucket, those below zero mirrored.
type Place = (i8, i32);

fn place(number: f64) -> Place {
    match number {
        _ if number.abs() < SMALLEST => (0, 0),
        _ if number > 0.0 => (1, bucket(number)),
        _ => (-1, -bucket(-number)),
    }
}

/// The number that is at most 1 % away from everything in its bucket.
fn number((sign, bucket): Place) -> f64 {
    let bucket = if sign < 0 { -bucket } else { bucket };
    f64::from(sign) * 2.0 * GROWTH.powi(bucket) / (1.0 + GROWTH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Sketch::default().quantile(0.5), None);
        let odd = Sketch::of([f64::NAN, f64::INFINITY]);
        assert_eq!((odd.count(), odd.odd(), odd.quantile(0.5)), (0, 2, None));
    }

    #[test]
    fn quantiles_of_a_thousand() {
        let sketch = Sketch::of((1..=1000).map(f64::from));
        for (q, wanted) in [(0.0, 1.0), (0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = sketch.quantile(q).unwrap();
            assert!((found - wanted).abs() <= 0.0101 * wanted + 1.0, "{q}: {found}");
        }
        let above = sketch.above(900.0);
        // Those up to the end of the border's own bucket, 2 % wide, do not count.
        assert!((80..=100).contains(&above), "{above}");
        assert_eq!(sketch.above(1e9), 0);
        assert_eq!(sketch.above(-1.0), 1000);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let powers = (-400_000..400_000).map(|n| 10_f64.powf(f64::from(n) / 1000.0));
        let sketch = Sketch::of(powers.flat_map(|n| [n, -n]));
        assert!(sketch.positive.len() <= 2_764 && sketch.negative.len() <= 2_764);
        assert!(serde_json::to_vec(&sketch).unwrap().len() < 100_000);
    }

    #[test]
    fn a_forged_sketch_is_refused() {
        for forged in [
            r#"{"version":2,"zero":0,"odd":0,"least":0,"most":0}"#,
            r#"{"version":1,"positive":{"99999":1},"zero":0,"odd":0,"least":0,"most":0}"#,
            r#"{"version":1,"positive":{"1":0},"zero":0,"odd":0,"least":0,"most":0}"#,
            r#"{"version":1,"zero":0,"odd":0,"least":1,"most":0}"#,
            r#"{"version":1,"positive":{"1":18446744073709551615},"zero":1,"odd":0,"least":0,"most":1}"#,
        ] {
            assert!(serde_json::from_str::<Sketch>(forged).is_err(), "{forged}");
        }
    }

    fn numbers() -> impl Strategy<Value = Vec<f64>> {
        let number = prop_oneof![-1e6..1e6_f64, 1e-6..1e-3_f64, Just(0.0), Just(f64::NAN)];
        prop::collection::vec(number, 0..60)
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_a_hundredth_of_the_number_there(
            mut all in prop::collection::vec(
                prop_oneof![1e-6..1e9_f64, -1e9..-1e-6_f64], 1..80),
            q in 0.0..=1.0_f64,
        ) {
            let sketch = Sketch::of(all.iter().copied());
            all.sort_by(f64::total_cmp);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let exact = all[(q * (all.len() - 1) as f64).floor() as usize];
            let found = sketch.quantile(q).unwrap();
            prop_assert!((found - exact).abs() <= 0.010_001 * exact.abs(), "{found} for {exact}");
        }

        #[test]
        fn merged_is_as_if_seen_together(one in numbers(), two in numbers()) {
            let together = Sketch::of(one.iter().chain(&two).copied());
            let mut merged = Sketch::of(one.iter().copied());
            merged.merge(&Sketch::of(two.iter().copied()));
            prop_assert_eq!(&merged, &together);
            let mut other_way = Sketch::of(two);
            other_way.merge(&Sketch::of(one));
            prop_assert_eq!(&other_way, &together);
        }

        #[test]
        fn it_survives_being_stored(all in numbers()) {
            let sketch = Sketch::of(all);
            let text = serde_json::to_string(&sketch).unwrap();
            prop_assert_eq!(serde_json::from_str::<Sketch>(&text).unwrap(), sketch);
        }
    }
}
