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
    quantile(samples, 99)
}

pub(crate) fn median(samples: &mut [f64]) -> f64 {
    quantile(samples, 50)
}

fn quantile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * percent / 100).copied().unwrap_or(f64::NAN)
}
