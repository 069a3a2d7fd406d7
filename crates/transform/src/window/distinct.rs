//! How many different values there are: counted up to a bound, estimated beyond it.
//!
//! Both forms are made of the hashes of values and of nothing else, and which of them it is depends on
//! their number alone.

use std::collections::BTreeSet;

use super::bytes::{Reader, put};

/// As many are counted.
pub(super) const COUNTED: usize = 256;
/// 2^12 registers: an error of about 1.6 %.
const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Distinct {
    Counted(BTreeSet<u64>),
    /// `HyperLogLog`: for each register the longest run of zeros seen.
    Estimated(Box<[u8]>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Counted(BTreeSet::new())
    }
}

fn note(registers: &mut [u8], hash: u64) {
    let register = usize::try_from(hash >> (64 - BITS)).unwrap_or(0);
    // A one below the end bounds the run.
    let run = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() + 1;
    let run = u8::try_from(run).unwrap_or(u8::MAX);
    registers[register] = registers[register].max(run);
}

impl Distinct {
    pub(super) fn add(&mut self, hash: u64) {
        match self {
            Self::Counted(hashes) => {
                hashes.insert(hash);
                self.settle();
            }
            Self::Estimated(registers) => note(registers, hash),
        }
    }

    fn settle(&mut self) {
        let Self::Counted(hashes) = self else { return };
        if hashes.len() > COUNTED {
            let mut registers = vec![0; REGISTERS].into_boxed_slice();
            for hash in hashes.iter() {
                note(&mut registers, *hash);
            }
            *self = Self::Estimated(registers);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Counted(ours), Self::Counted(theirs)) => {
                ours.extend(theirs);
                self.settle();
            }
            (Self::Estimated(ours), Self::Estimated(theirs)) => {
                for (ours, theirs) in ours.iter_mut().zip(theirs) {
                    *ours = (*ours).max(*theirs);
                }
            }
            (Self::Estimated(ours), Self::Counted(theirs)) => {
                for hash in theirs {
                    note(ours, *hash);
                }
            }
            (Self::Counted(ours), Self::Estimated(theirs)) => {
                let mut registers = theirs.clone();
                for hash in ours.iter() {
                    note(&mut registers, *hash);
                }
                *self = Self::Estimated(registers);
            }
        }
    }

    pub(super) fn value(&self) -> i64 {
        match self {
            Self::Counted(hashes) => i64::try_from(hashes.len()).unwrap_or(i64::MAX),
            Self::Estimated(registers) => estimate(registers),
        }
    }

    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Counted(hashes) => hashes.len() * 16,
            Self::Estimated(registers) => registers.len(),
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Counted(hashes) => {
                put(out, hashes.len() as u128);
                for hash in hashes {
                    out.extend_from_slice(&hash.to_le_bytes());
                }
            }
            Self::Estimated(registers) => {
                put(out, COUNTED as u128 + 1);
                out.extend_from_slice(registers);
            }
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let count = from.length()?;
        if count <= COUNTED {
            let hashes = (0..count).map(|_| from.array().map(u64::from_le_bytes));
            return hashes.collect::<Option<_>>().map(Self::Counted);
        }
        Some(Self::Estimated(from.take(REGISTERS)?.into()))
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::naive_bytecount,
    reason = "an estimate of far fewer than 2^53, of a few thousand bytes"
)]
fn estimate(registers: &[u8]) -> i64 {
    let count = REGISTERS as f64;
    let sum: f64 = registers.iter().map(|run| 0.5_f64.powi((*run).into())).sum();
    let alpha = 0.7213 / (1.0 + 1.079 / count);
    let raw = alpha * count * count / sum;
    let empty = registers.iter().filter(|run| **run == 0).count();
    let found =
        if raw <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { raw };
    found.round() as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::of_int;

    fn of(numbers: impl Iterator<Item = i64>) -> Distinct {
        let mut found = Distinct::default();
        for number in numbers {
            found.add(of_int(number));
        }
        found
    }

    #[test]
    fn exact_up_to_the_bound_and_near_beyond() {
        assert_eq!(of((0..256).chain(0..256)).value(), 256);
        for count in [300_i64, 1000, 10_000, 100_000, 1_000_000] {
            let found = of(0..count).value();
            assert!((found - count).abs() * 100 <= count * 6, "{count}: {found}");
        }
    }

    proptest! {
        #[test]
        fn merged_is_as_if_added(
            numbers in prop::collection::vec(0_i64..600, 0..600), cut in 0_usize..600
        ) {
            let cut = cut.min(numbers.len());
            let whole = of(numbers.iter().copied());
            let (mut one, other) =
                (of(numbers[..cut].iter().copied()), of(numbers[cut..].iter().copied()));
            let mut turned = other.clone();
            turned.merge(&one);
            one.merge(&other);
            prop_assert_eq!(&one, &whole);
            prop_assert_eq!(&turned, &whole);
            let mut kept = Vec::new();
            whole.write(&mut kept);
            prop_assert_eq!(Distinct::read(&mut Reader(&kept)), Some(whole));
        }
    }
}
