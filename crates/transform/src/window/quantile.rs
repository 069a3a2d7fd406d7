//! How values are spread: counted in buckets that become wider when there are too many.
//!
//! A float's bits, read as a number, are in its order; the upper ones make a bucket. With all of them
//! every value has its own, and quantiles are exact. With fewer, a bucket is a fixed share of a power
//! of two wide. How many bits are left depends on how many buckets there would be, and so on the
//! values alone.

use std::collections::BTreeMap;

use super::bytes::{Reader, put};
use crate::hash::canonical;

/// The most buckets.
pub(super) const BUCKETS: usize = 1024;
/// How many bits are left out, step by step: none, then such that a power of two has 4096, 512, 64, 8
/// and 1 buckets; at last all floats together have no more than are allowed.
const STEPS: [u32; 7] = [0, 40, 43, 46, 49, 52, 54];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    step: usize,
    /// How many values are in each bucket.
    counts: BTreeMap<u64, u64>,
}

const SIGN: u64 = 1 << 63;

/// The bits of a float, in its order.
fn ordered(value: f64) -> u64 {
    let bits = canonical(value).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

fn back(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits & !SIGN })
}

impl Spread {
    /// Adds a number; what is none is passed over.
    pub(super) fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = ordered(value) >> STEPS[self.step];
        self.put(bucket, 1);
        self.settle(self.step);
    }

    fn put(&mut self, bucket: u64, count: u64) {
        let known = self.counts.entry(bucket).or_default();
        *known = known.saturating_add(count);
    }

    /// Widens buckets to a step at least, and until there are few enough.
    fn settle(&mut self, least: usize) {
        let mut step = self.step.max(least);
        loop {
            if step != self.step {
                let by = STEPS[step] - STEPS[self.step];
                let mut wider = BTreeMap::new();
                for (bucket, count) in &self.counts {
                    let known: &mut u64 = wider.entry(bucket >> by).or_default();
                    *known = known.saturating_add(*count);
                }
                (self.counts, self.step) = (wider, step);
            }
            if self.counts.len() <= BUCKETS || step + 1 == STEPS.len() {
                return;
            }
            step += 1;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.settle(other.step);
        let by = STEPS[self.step] - STEPS[other.step];
        for (bucket, count) in &other.counts {
            self.put(bucket >> by, *count);
        }
        self.settle(self.step);
    }

    /// The value below or at which this share of all lies; none if there are none.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among fewer than 2^53"
    )]
    pub(super) fn value(&self, share: f64) -> Option<f64> {
        let all = self.counts.values().fold(0, |all: u64, count| all.saturating_add(*count));
        let rank = ((share * all as f64).ceil() as u64).clamp(1, all.max(1));
        let mut before = 0;
        let found = self.counts.iter().find(|(_, count)| {
            before = u64::saturating_add(before, **count);
            before >= rank
        });
        let (bucket, _) = found?;
        let shift = STEPS[self.step];
        let low = back(bucket << shift);
        let high = back((bucket << shift) | ((1_u64 << shift) - 1));
        // At the ends of all floats a bucket reaches to what is no number.
        Some(match (low.is_finite(), high.is_finite()) {
            (true, true) => low + (high - low) / 2.0,
            _ if low.is_nan() => high,
            _ => low,
        })
    }

    pub(super) fn heap(&self) -> usize {
        self.counts.len() * 24
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put(out, self.step as u128);
        put(out, self.counts.len() as u128);
        let mut last = 0;
        for (bucket, count) in &self.counts {
            put(out, (bucket - last).into());
            put(out, (*count).into());
            last = *bucket;
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let step: usize = from.number()?.try_into().ok()?;
        let shift = *STEPS.get(step)?;
        let (mut counts, mut last) = (BTreeMap::new(), 0_u64);
        for _ in 0..from.length()? {
            last = last.checked_add(from.number()?.try_into().ok()?)?;
            let fits = shift == 0 || last >> (64 - shift) == 0;
            let count: u64 = from.number()?.try_into().ok()?;
            counts.insert(fits.then_some(last)?, count);
        }
        Some(Self { step, counts })
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is exact is equal")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Spread {
        let mut spread = Spread::default();
        for value in values {
            spread.add(*value);
        }
        spread
    }

    #[test]
    fn few_values_are_exact() {
        let spread = of(&[5.0, 1.0, 3.0, 2.0, 4.0, f64::NAN]);
        for (share, expected) in [(0.0, 1.0), (0.2, 1.0), (0.5, 3.0), (0.81, 5.0), (1.0, 5.0)] {
            assert_eq!(spread.value(share), Some(expected), "{share}");
        }
        assert_eq!(of(&[]).value(0.5), None);
        assert_eq!(of(&[f64::NEG_INFINITY]).value(0.5), Some(f64::NEG_INFINITY));
    }

    #[test]
    fn many_values_are_near() {
        #[allow(clippy::cast_precision_loss)]
        let values: Vec<f64> = (1..=100_000_u32).map(|value| f64::from(value) / 7.0).collect();
        let spread = of(&values);
        assert!(spread.counts.len() <= BUCKETS);
        for share in [0.01, 0.25, 0.5, 0.9, 0.99] {
            let (found, expected) = (spread.value(share).unwrap(), share * 100_000.0 / 7.0);
            assert!((found - expected).abs() <= expected * 0.01, "{share}: {found} {expected}");
        }
    }

    proptest! {
        #[test]
        fn merged_is_as_if_added(
            seeds in prop::collection::vec((any::<f64>(), 1..40_u32), 0..80), cut in 0_usize..4000
        ) {
            // Enough values to make buckets wider.
            let values: Vec<f64> = seeds
                .iter()
                .flat_map(|(seed, times)| (0..*times).map(move |time| seed * f64::from(time + 1)))
                .collect();
            let cut = cut.min(values.len());
            let whole = of(&values);
            let (mut one, other) = (of(&values[..cut]), of(&values[cut..]));
            let mut turned = other.clone();
            turned.merge(&one);
            one.merge(&other);
            prop_assert_eq!(&one, &whole);
            prop_assert_eq!(&turned, &whole);
            let mut kept = Vec::new();
            whole.write(&mut kept);
            prop_assert_eq!(Spread::read(&mut Reader(&kept)), Some(whole));
        }
    }
}
