//! Prints each measurement beside its goal, and counts the misses.

/// What a measurement must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    missed: usize,
}

impl Report {
    /// A number that explains another one.
    #[allow(clippy::unused_self, reason = "everything printed goes through the report")]
    pub(crate) fn note(&self, what: &str, value: f64, unit: &str) {
        println!("  {what:<58} {value:>12.2} {unit}");
    }

    /// Several numbers about one thing.
    #[allow(clippy::unused_self, reason = "everything printed goes through the report")]
    pub(crate) fn row(&self, what: &str, numbers: &[(f64, &str)]) {
        let shown = numbers.iter().map(|(value, unit)| format!("{value:>10.2} {unit}"));
        println!("  {what:<58} {}", shown.collect::<Vec<_>>().join("  "));
    }

    pub(crate) fn goal(&mut self, what: &str, value: f64, unit: &str, goal: Goal) {
        let (met, sign, limit) = match goal {
            Goal::AtLeast(limit) => (value >= limit, "≥", limit),
            Goal::AtMost(limit) => (value <= limit, "≤", limit),
        };
        self.missed += usize::from(!met);
        let verdict = if met { "met" } else { "MISSED" };
        println!("* {what:<58} {value:>12.2} {unit}  (goal {sign} {limit}: {verdict})");
    }

    pub(crate) fn missed(&self) -> usize {
        self.missed
    }
}

/// The value below which 99 of 100 samples lie.
pub(crate) fn p99(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * 99 / 100).copied().unwrap_or(f64::NAN)
}

/// The middle one; of an even number, what lies between the middle two: the upper one would make the best
/// of two rounds the measure.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    match samples.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => samples[odd / 2],
        even => f64::midpoint(samples[even / 2 - 1], samples[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        for (samples, expected) in [
            (&[3.0][..], 3.0),
            (&[2.0, 1.0], 1.5),
            (&[9.0, 1.0, 2.0], 2.0),
            (&[4.0, 1.0, 100.0, 2.0], 3.0),
        ] {
            assert!((median(&mut samples.to_vec()) - expected).abs() < 1e-12, "{samples:?}");
        }
        assert!(median(&mut []).is_nan());
    }
}
