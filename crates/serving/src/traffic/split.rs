//! Which variant answers a request: shares of the traffic, sticky by a key.
//!
//! Must hold:
//! - A key meets the same variant on every machine and after every restart while the weights stay.
//! - When weights change, few keys move. Each variant draws a waiting time from the hash of (salt,
//!   key, its own name), the shorter the heavier it is, and the shortest wins. Only ratios matter:
//!   a variant whose weight alone grows takes keys from the others and no key moves between them.
//!   No rule without memory moves fewer keys in the worst case.
//! - How a key is hashed is frozen by a test; changing it would move everybody.

use falaj_base::{Error, Name, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::hashed;
use super::version::Version;

/// How many variants an endpoint may have.
pub const MAX_VARIANTS: usize = 16;

/// Beyond this two weights are so far apart that the smaller gets nothing.
const MAX_WEIGHT: f64 = 1e9;

/// A variant and its part of the traffic, relative to the others'.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    pub variant: Name,
    pub weight: f64,
}

/// Variants and their weights, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Split {
    arms: Vec<Arm>,
    total: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Arm {
    variant: Name,
    weight: f64,
    /// The hash of the name, so that a request hashes only its key.
    seed: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: Version<1>,
    weights: Vec<Weight>,
}

impl TryFrom<Stored> for Split {
    type Error = Error;
    fn try_from(stored: Stored) -> Result<Self> {
        Self::new(stored.weights)
    }
}

impl From<Split> for Stored {
    fn from(split: Split) -> Self {
        Self { version: Version, weights: split.weights().collect() }
    }
}

impl Split {
    pub fn new(weights: Vec<Weight>) -> Result<Self> {
        if weights.is_empty() || weights.len() > MAX_VARIANTS {
            return Err(Error::invalid("weights", weights.len(), "1 to 16 variants"));
        }
        let mut arms: Vec<Arm> = Vec::with_capacity(weights.len());
        for Weight { variant, weight } in weights {
            if !(0.0..=MAX_WEIGHT).contains(&weight) {
                let field = format!("weights.{variant}");
                return Err(Error::invalid(field, weight, "0 to 1000000000"));
            }
            if arms.iter().any(|arm| arm.variant == variant) {
                return Err(Error::invalid("weights", variant, "each variant once"));
            }
            let seed = hashed(&[variant.as_str()]);
            arms.push(Arm { variant, weight, seed });
        }
        let total: f64 = arms.iter().map(|arm| arm.weight).sum();
        if total <= 0.0 {
            return Err(Error::invalid("weights", total, "a sum above 0"));
        }
        Ok(Self { arms, total })
    }

    /// Everything to one variant.
    #[must_use]
    pub fn only(variant: Name) -> Self {
        let seed = hashed(&[variant.as_str()]);
        Self { arms: vec![Arm { variant, weight: 1.0, seed }], total: 1.0 }
    }

    /// The variant of a key. The salt keeps the users of one endpoint's variants from being, user
    /// by user, those of another's.
    #[must_use]
    pub fn by_key(&self, salt: &str, key: &str) -> &Name {
        let key = hashed(&[salt, key]);
        let wait = |arm: &Arm| -unit(mixed(key ^ arm.seed)).ln() / arm.weight;
        self.least(wait)
    }

    /// The variant of a request without a key, from a number evenly drawn from [0, 1).
    #[must_use]
    pub fn by_chance(&self, drawn: f64) -> &Name {
        let mut left = drawn.clamp(0.0, 1.0) * self.total;
        for arm in &self.arms {
            if left < arm.weight {
                return &arm.variant;
            }
            left -= arm.weight;
        }
        // Rounding, or a draw of exactly one: the last that may answer at all.
        self.least(|arm| if arm.weight > 0.0 { 0.0 } else { f64::INFINITY })
    }

    #[must_use]
    pub fn pick(&self, salt: &str, key: Option<&str>, drawn: f64) -> &Name {
        match key {
            Some(key) => self.by_key(salt, key),
            None => self.by_chance(drawn),
        }
    }

    /// The part of all traffic that a variant gets.
    #[must_use]
    pub fn share(&self, variant: &Name) -> f64 {
        let arm = self.arms.iter().find(|arm| &arm.variant == variant);
        arm.map_or(0.0, |arm| arm.weight / self.total)
    }

    pub fn weights(&self) -> impl Iterator<Item = Weight> {
        let weight = |arm: &Arm| Weight { variant: arm.variant.clone(), weight: arm.weight };
        self.arms.iter().map(weight)
    }

    fn least(&self, measure: impl Fn(&Arm) -> f64) -> &Name {
        let mut best = (f64::INFINITY, &self.arms[0]);
        for arm in self.arms.iter().filter(|arm| arm.weight > 0.0) {
            let measured = measure(arm);
            if measured < best.0 {
                best = (measured, arm);
            }
        }
        &best.1.variant
    }
}

/// Spreads every bit over all others (the finaliser of `SplitMix64`, twice: the inputs of two
/// variants differ by a constant).
const fn mixed(mut bits: u64) -> u64 {
    let mut round = 0;
    while round < 2 {
        bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        round += 1;
    }
    bits
}

/// A number strictly between 0 and 1.
fn unit(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(weights: &[(&str, f64)]) -> Split {
        let weight =
            |&(name, weight): &(&str, f64)| Weight { variant: Name::new(name).unwrap(), weight };
        Split::new(weights.iter().map(weight).collect()).unwrap()
    }

    fn keys(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("user-{number}"))
    }

    fn moved(before: &Split, after: &Split, count: usize) -> f64 {
        let moves = |key: &String| before.by_key("s", key) != after.by_key("s", key);
        keys(count).filter(moves).count() as f64 / count as f64
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let make = |weights: &[(&str, f64)]| {
            let weight = |&(name, weight): &(&str, f64)| Weight {
                variant: Name::new(name).unwrap(),
                weight,
            };
            Split::new(weights.iter().map(weight).collect()).map_err(|e| e.message().to_owned())
        };
        for (weights, said) in [
            (&[][..], "`weights` is \"0\"; allowed: 1 to 16 variants"),
            (&[("a", -1.0)][..], "`weights.a` is \"-1\"; allowed: 0 to 1000000000"),
            (&[("a", f64::NAN)][..], "`weights.a` is \"NaN\"; allowed: 0 to 1000000000"),
            (&[("a", f64::INFINITY)][..], "`weights.a` is \"inf\"; allowed: 0 to 1000000000"),
            (&[("a", 1.0), ("a", 2.0)][..], "`weights` is \"a\"; allowed: each variant once"),
            (&[("a", 0.0), ("b", 0.0)][..], "`weights` is \"0\"; allowed: a sum above 0"),
        ] {
            assert_eq!(make(weights).unwrap_err(), said);
        }
        let many: Vec<_> = (0..17).map(|n| format!("v{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), 1.0)).collect();
        assert!(make(&many).is_err());
        assert!(make(&many[..16]).is_ok());
    }

    #[test]
    fn a_key_stays_where_it_was_put_in_the_first_release() {
        let split = split(&[("blue", 50.0), ("green", 30.0), ("red", 20.0)]);
        let found: Vec<_> = keys(12).map(|key| split.by_key("salt", &key).to_string()).collect();
        let frozen = "blue blue green blue red green blue green blue red blue blue";
        assert_eq!(found.join(" "), frozen);
    }

    #[test]
    fn shares_are_as_asked_with_and_without_a_key() {
        let split = split(&[("a", 70.0), ("b", 25.0), ("c", 5.0), ("never", 0.0)]);
        let count = 40_000;
        for name in ["a", "b", "c", "never"] {
            let name = Name::new(name).unwrap();
            let share = split.share(&name);
            let near = |found: usize| (found as f64 / count as f64 - share).abs() < 0.01;
            assert!(near(keys(count).filter(|key| split.by_key("x", key) == &name).count()));
            let drawn = |n: usize| split.by_chance((n as f64 + 0.5) / count as f64) == &name;
            assert!(near((0..count).filter(|&n| drawn(n)).count()));
        }
    }

    #[test]
    fn one_endpoints_variants_say_nothing_of_anothers() {
        let split = split(&[("a", 1.0), ("b", 1.0)]);
        let both = keys(20_000).filter(|key| split.by_key("x", key) == split.by_key("y", key));
        assert!((both.count() as f64 / 20_000.0 - 0.5).abs() < 0.02);
    }

    #[test]
    fn few_keys_move_when_weights_do() {
        for (before, after, fewest) in [
            // Two variants: exactly the change of share.
            (&[("a", 99.0), ("b", 1.0)][..], &[("a", 95.0), ("b", 5.0)][..], 0.04),
            (&[("a", 95.0), ("b", 5.0)], &[("a", 75.0), ("b", 25.0)], 0.20),
            // A newcomer takes its share and moves nobody else.
            (&[("a", 50.0), ("b", 50.0)], &[("a", 50.0), ("b", 50.0), ("c", 25.0)], 0.2),
            // The order and the scale do not matter.
            (&[("a", 1.0), ("b", 3.0)], &[("b", 75.0), ("a", 25.0)], 0.0),
        ] {
            let moved = moved(&split(before), &split(after), 40_000);
            assert!((moved - fewest).abs() < 0.006, "{before:?} to {after:?}: {moved}");
        }
    }

    #[test]
    fn a_draw_at_the_edge_still_finds_a_variant_that_answers() {
        let split = split(&[("never", 0.0), ("a", 0.1), ("b", 0.2), ("off", 0.0)]);
        for (drawn, name) in [(0.0, "a"), (0.999_999, "b"), (f64::NAN, "a"), (-1.0, "a")] {
            assert_eq!(split.by_chance(drawn).as_str(), name);
        }
        assert!(["a", "b"].contains(&split.by_chance(1.0).as_str()));
    }

    proptest! {
        #[test]
        fn a_heavier_variant_only_gains_and_only_from_others(
            weights in prop::collection::vec(0.01..100.0_f64, 2..8),
            grows in 0..8_usize,
            factor in 1.0..50.0_f64,
        ) {
            let names: Vec<_> = (0..weights.len()).map(|n| format!("v{n}")).collect();
            let list = |weights: &[f64]| -> Vec<(String, f64)> {
                names.iter().cloned().zip(weights.iter().copied()).collect()
            };
            let make = |weights: &[f64]| {
                let all = list(weights);
                split(&all.iter().map(|(name, weight)| (name.as_str(), *weight)).collect::<Vec<_>>())
            };
            let grows = grows % weights.len();
            let mut heavier = weights.clone();
            heavier[grows] *= factor;
            let (before, after) = (make(&weights), make(&heavier));
            for key in keys(50) {
                let (old, new) = (before.by_key("s", &key), after.by_key("s", &key));
                prop_assert!(old == new || new.as_str() == names[grows]);
            }
        }

        #[test]
        fn it_survives_being_stored(weights in prop::collection::vec(0.0..1e9_f64, 1..=16)) {
            prop_assume!(weights.iter().sum::<f64>() > 0.0);
            let weight = |(n, &weight): (usize, &f64)| Weight {
                variant: Name::new(format!("v{n}")).unwrap(),
                weight,
            };
            let split = Split::new(weights.iter().enumerate().map(weight).collect()).unwrap();
            let text = serde_json::to_string(&split).unwrap();
            prop_assert_eq!(serde_json::from_str::<Split>(&text).unwrap(), split);
        }
    }
}
