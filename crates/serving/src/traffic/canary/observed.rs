//! What was seen of one variant during one step.

use falaj_base::Result;
use serde::{Deserialize, Serialize};

use crate::traffic::sequential::Outcomes;
use crate::traffic::sketch::Sketch;

/// Counts, times and outcomes; mergeable, so that several servers can each keep a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    pub requests: u64,
    pub errors: u64,
    /// Milliseconds of the requests that succeeded: failing fast is not being fast.
    pub latency: Sketch,
    #[serde(default)]
    pub outcomes: Option<Outcomes>,
}

impl Observed {
    pub fn succeeded(&mut self, millis: f64) {
        self.requests = self.requests.saturating_add(1);
        self.latency.record(millis);
    }

    pub fn failed(&mut self) {
        self.requests = self.requests.saturating_add(1);
        self.errors = self.errors.saturating_add(1);
    }

    /// An outcome that was reported; the first decides of which kind they are.
    pub fn outcome(&mut self, kind: Outcomes, value: f64) -> Result<()> {
        self.outcomes.get_or_insert(kind).record(value)
    }

    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if let (Some(into), Some(from)) = (&mut self.outcomes, &other.outcomes) {
            into.merge(from)?;
        } else if self.outcomes.is_none() {
            self.outcomes = other.outcomes;
        }
        self.requests = self.requests.saturating_add(other.requests);
        self.errors = self.errors.saturating_add(other.errors);
        self.latency.merge(&other.latency);
        Ok(())
    }

    /// The share of failed requests, never quite zero: a baseline without errors does not show
    /// that errors never happen.
    pub(super) fn error_rate(&self) -> Option<f64> {
        let rate = (self.errors.min(self.requests) as f64 + 1.0) / (self.requests as f64 + 1.0);
        (self.requests > 0).then_some(rate)
    }
}
