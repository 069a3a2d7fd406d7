//! How far a shadow's answers are from those that were given.
//!
//! For each output: labels that came out different, distances of numbers, and how far apart the
//! distributions of the scores are (population stability index over running histograms); and how
//! long both took. Everything is a running, mergeable summary.
//!
//! Must hold:
//! - Memory is bounded: so many outputs, so many kinds of flips, sketches of bounded size, and of a
//!   large tensor a sample at even distances.
//! - A shadow that fails, leaves an output out or answers in another shape is counted as such, and
//!   never compared as if it were equal.

mod numbers;
mod output;

pub use output::{Flip, OutputDiff, OutputReport};

use std::collections::BTreeMap;

use falaj_inference::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moments::Moments;
use super::sketch::Sketch;
use super::version::Version;

/// How many outputs of a model are compared.
const MAX_OUTPUTS: usize = 16;

/// What a variant answered, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub outputs: &'a [(String, Tensor)],
    pub millis: f64,
}

/// The running comparison of a shadow with the primary, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shadow {
    version: Version<1>,
    compared: u64,
    failed: u64,
    outputs: BTreeMap<String, OutputDiff>,
    /// Outputs that were not compared because there are too many.
    beyond: u64,
    primary_millis: Sketch,
    own_millis: Sketch,
    /// Milliseconds that the shadow took longer, request by request.
    slower: Moments,
}

/// What the comparison shows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// Requests that both answered.
    pub compared: u64,
    /// Requests that the shadow failed to answer.
    pub failed: u64,
    pub outputs: BTreeMap<String, OutputReport>,
    pub outputs_not_compared: u64,
    pub primary_millis: Option<Times>,
    pub shadow_millis: Option<Times>,
    /// Milliseconds that the shadow takes longer, on average.
    pub mean_slower: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Times {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Shadow {
    /// A request that the primary answered, and the shadow's answer, if it gave one.
    pub fn record(&mut self, primary: Answered<'_>, shadow: Option<Answered<'_>>) {
        let Some(shadow) = shadow else {
            self.failed = self.failed.saturating_add(1);
            return;
        };
        self.compared = self.compared.saturating_add(1);
        self.primary_millis.record(primary.millis);
        self.own_millis.record(shadow.millis);
        // A time that is not a number is counted by the sketches and says nothing here.
        let _ = self.slower.record(shadow.millis - primary.millis);
        for (name, given) in primary.outputs {
            if let Some(diff) = self.output(name) {
                let other = shadow.outputs.iter().find(|(other, _)| other == name);
                diff.record(given, other.map(|(_, tensor)| tensor));
            }
        }
    }

    /// Adds what another server compared.
    pub fn merge(&mut self, other: &Self) {
        self.compared = self.compared.saturating_add(other.compared);
        self.failed = self.failed.saturating_add(other.failed);
        self.beyond = self.beyond.saturating_add(other.beyond);
        self.primary_millis.merge(&other.primary_millis);
        self.own_millis.merge(&other.own_millis);
        self.slower.merge(&other.slower);
        for (name, diff) in &other.outputs {
            if let Some(into) = self.output(name) {
                into.merge(diff);
            }
        }
    }

    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            compared: self.compared,
            failed: self.failed,
            outputs: self
                .outputs
                .iter()
                .map(|(name, diff)| (name.clone(), diff.report()))
                .collect(),
            outputs_not_compared: self.beyond,
            primary_millis: times(&self.primary_millis),
            shadow_millis: times(&self.own_millis),
            mean_slower: self.slower.mean(),
        }
    }

    fn output(&mut self, name: &str) -> Option<&mut OutputDiff> {
        if !self.outputs.contains_key(name) {
            if self.outputs.len() >= MAX_OUTPUTS {
                self.beyond = self.beyond.saturating_add(1);
                return None;
            }
            self.outputs.insert(name.to_owned(), OutputDiff::default());
        }
        self.outputs.get_mut(name)
    }
}

fn times(sketch: &Sketch) -> Option<Times> {
    let at = |q| sketch.quantile(q);
    Some(Times { p50: at(0.5)?, p95: at(0.95)?, p99: at(0.99)? })
}

/// The population stability index of two distributions over tenths of the first: below 0.1 they
/// are alike, above 0.25 they are not. None without numbers on both sides.
#[must_use]
pub fn psi(expected: &Sketch, found: &Sketch) -> Option<f64> {
    if expected.count() == 0 || found.count() == 0 {
        return None;
    }
    let tenths = (1..10_u32).filter_map(|tenth| expected.quantile(f64::from(tenth) / 10.0));
    // Where many numbers are equal, several tenths end at the same border and the bins between
    // them hold nothing on either side.
    let mut above: Vec<(u64, u64)> = vec![(expected.count(), found.count())];
    above.extend(tenths.map(|border| (expected.above(border), found.above(border))));
    above.push((0, 0));
    let bins: Vec<_> = above
        .windows(2)
        .map(|pair| (pair[0].0.saturating_sub(pair[1].0), pair[0].1.saturating_sub(pair[1].1)))
        .filter(|&(one, other)| one + other > 0)
        .collect();
    // Half a number more in each bin, so that an empty one does not count for infinity.
    let share = |many: u64, all: u64| (many as f64 + 0.5) / (all as f64 + 0.5 * bins.len() as f64);
    let apart = |&(one, other): &(u64, u64)| {
        let (p, q) = (share(one, expected.count()), share(other, found.count()));
        (q - p) * (q / p).ln()
    };
    Some(bins.iter().map(apart).sum())
}

#[cfg(test)]
mod tests;
