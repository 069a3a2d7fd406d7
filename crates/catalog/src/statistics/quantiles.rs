//! About how values are spread: a sketch that keeps some hundred of them, each standing for a power
//! of two of others.
//!
//! Values are gathered in levels. A level that is full is sorted, every second value of it moves up a
//! level and stands for twice as many. Which half moves alternates, so that nothing is left to
//! chance and errors even out. Two sketches are merged level by level.

use serde::{Deserialize, Serialize};

/// Values of the highest level; those below have less, since they stand for less.
const WIDTH: usize = 200;
const NARROWEST: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    /// A value of level `n` stands for 2ⁿ.
    levels: Vec<Vec<f64>>,
    /// For each level, which half moves up next.
    odd: Vec<bool>,
}

impl Quantiles {
    /// Adds a value, which must be finite.
    pub(crate) fn add(&mut self, value: f64) {
        if self.levels.is_empty() {
            self.grow();
        }
        self.levels[0].push(value);
        if self.levels[0].len() >= self.capacity(0) {
            self.compact();
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        while self.levels.len() < other.levels.len() {
            self.grow();
        }
        for (mine, theirs) in self.levels.iter_mut().zip(&other.levels) {
            mine.extend(theirs);
        }
        self.compact();
    }

    fn grow(&mut self) {
        self.levels.push(Vec::new());
        self.odd.push(false);
    }

    /// Each level below the highest has two thirds of the room of the one above.
    fn capacity(&self, level: usize) -> usize {
        let below = self.levels.len() - 1 - level;
        (0..below).fold(WIDTH, |width, _| width * 2 / 3).max(NARROWEST)
    }

    fn compact(&mut self) {
        let mut level = 0;
        while level < self.levels.len() {
            if self.levels[level].len() < self.capacity(level) {
                level += 1;
                continue;
            }
            if level + 1 == self.levels.len() {
                self.grow();
            }
            let mut full = std::mem::take(&mut self.levels[level]);
            full.sort_unstable_by(f64::total_cmp);
            // One of an odd number stays, or the sketch would stand for more than it has seen.
            if full.len() % 2 == 1 {
                self.levels[level].extend(full.pop());
            }
            let from = usize::from(self.odd[level]);
            self.odd[level] = !self.odd[level];
            self.levels[level + 1].extend(full.into_iter().skip(from).step_by(2));
            level += 1;
        }
    }

    /// The values below which these shares of all lie.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub(crate) fn at(&self, shares: &[f64]) -> Option<Vec<f64>> {
        let mut all: Vec<(f64, u64)> = Vec::new();
        for (level, values) in self.levels.iter().enumerate() {
            let weight = 1_u64 << level.min(62);
            all.extend(values.iter().map(|value| (*value, weight)));
        }
        all.sort_unstable_by(|left, right| left.0.total_cmp(&right.0));
        let total: u64 = all.iter().map(|(_, weight)| weight).sum();
        let last = all.last()?.0;
        let one = |share: &f64| {
            let wanted = (share * total as f64).ceil().max(1.0) as u64;
            let mut seen = 0;
            let found = all.iter().find(|(_, weight)| {
                seen += weight;
                seen >= wanted
            });
            found.map_or(last, |(value, _)| *value)
        };
        Some(shares.iter().map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 on, well mixed.
    fn mixed(count: u64) -> impl Iterator<Item = f64> {
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        (0..count).map(move |number| (number * 7919 % count) as f64)
    }

    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn near(sketch: &Quantiles, count: u64) {
        let shares = [0.01, 0.25, 0.5, 0.75, 0.99];
        for (share, found) in shares.iter().zip(sketch.at(&shares).unwrap()) {
            let off = (found / count as f64 - share).abs();
            assert!(off < 0.03, "{share} of {count} is {found}");
        }
    }

    #[test]
    fn quantiles_are_near_and_sketches_small() {
        for count in [50, 1000, 100_003] {
            let mut sketch = Quantiles::default();
            mixed(count).for_each(|value| sketch.add(value));
            near(&sketch, count);
            assert!(sketch.levels.iter().map(Vec::len).sum::<usize>() < 4 * WIDTH);
        }
        assert_eq!(Quantiles::default().at(&[0.5]), None);
    }

    #[test]
    fn nothing_is_lost_in_a_merge() {
        let mut parts = vec![Quantiles::default(); 7];
        for (place, value) in mixed(50_000).enumerate() {
            parts[place % 7].add(value);
        }
        let mut whole = Quantiles::default();
        for part in &parts {
            whole.merge(part);
        }
        let weight: u64 =
            whole.levels.iter().enumerate().map(|(at, it)| (it.len() as u64) << at).sum();
        assert_eq!(weight, 50_000);
        near(&whole, 50_000);
    }
}
