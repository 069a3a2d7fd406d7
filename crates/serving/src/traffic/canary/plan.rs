//! What is asked of a rollout before it begins.

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::traffic::sequential::Design;

const MAX_STEPS: usize = 20;
const MAX_RULES: usize = 16;

/// The steps and the rules of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Shares that grow, each with what it takes to go on.
    pub steps: Vec<Step>,
    /// Limits on the share of failed requests; each must be kept.
    #[serde(default)]
    pub errors: Vec<Limit>,
    #[serde(default)]
    pub burst: Burst,
    /// Limits on the time of successful requests, in milliseconds.
    #[serde(default)]
    pub latency: Vec<LatencyRule>,
    #[serde(default)]
    pub quality: Option<Quality>,
    /// The probability of rolling back a version that keeps every rule.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
}

fn default_alpha() -> f64 {
    0.05
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The part of the traffic, above 0 and up to 1.
    pub share: f64,
    /// Requests of the new version before anything is decided.
    #[serde(default)]
    pub min_requests: u64,
    #[serde(default)]
    pub min_seconds: u64,
}

impl Step {
    pub(super) const ALL: Self = Self { share: 1.0, min_requests: 0, min_seconds: 0 };
}

/// So many errors, so soon, that nobody waits for more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Errors before it can be one.
    pub errors: u64,
    /// The share of failed requests that it must, provably, be above.
    pub rate: f64,
}

impl Default for Burst {
    fn default() -> Self {
        Self { errors: 10, rate: 0.25 }
    }
}

/// A figure, or a multiple of the baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    AtMost(f64),
    TimesBaseline(f64),
}

impl Limit {
    /// What is allowed; none without a baseline to measure by.
    pub(super) fn allowed(&self, baseline: Option<f64>) -> Option<f64> {
        match self {
            Self::AtMost(figure) => Some(*figure),
            Self::TimesBaseline(ratio) => baseline.map(|baseline| baseline * ratio),
        }
    }

    fn check(&self, field: &str, most: f64) -> Result<()> {
        let (figure, allowed) = match *self {
            Self::AtMost(figure) => (figure, 0.0..=most),
            Self::TimesBaseline(ratio) => (ratio, 1.0..=1000.0),
        };
        if allowed.contains(&figure) {
            return Ok(());
        }
        let allowed = format!("{} to {}", allowed.start(), allowed.end());
        Err(Error::invalid(field, figure, allowed))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyRule {
    pub quantile: Quantile,
    pub limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    P50,
    P95,
    P99,
}

impl Quantile {
    pub const ALL: [Self; 3] = [Self::P50, Self::P95, Self::P99];

    #[must_use]
    pub fn share(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P95 => 0.95,
            Self::P99 => 0.99,
        }
    }
}

/// A limit on how much worse the reported outcomes may be than the baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    pub design: Design,
    /// How much worse is still allowed, in the unit of the outcome.
    #[serde(default)]
    pub max_drop: f64,
    /// Whether a step waits until the outcomes show that the limit is kept; without it, outcomes
    /// stop a rollout but do not hold it up.
    #[serde(default)]
    pub prove: bool,
}

impl Plan {
    pub fn check(&self) -> Result<()> {
        if self.steps.is_empty() || self.steps.len() > MAX_STEPS {
            return Err(Error::invalid("steps", self.steps.len(), "1 to 20 steps"));
        }
        let mut before = 0.0;
        for (place, step) in self.steps.iter().enumerate() {
            if !(step.share > before && step.share <= 1.0) {
                let allowed = format!("more than {before} and at most 1");
                return Err(Error::invalid(format!("steps[{place}].share"), step.share, allowed));
            }
            before = step.share;
        }
        if self.errors.len() + self.latency.len() > MAX_RULES {
            let rules = self.errors.len() + self.latency.len();
            return Err(Error::invalid("rules", rules, "at most 16 limits"));
        }
        for (place, limit) in self.errors.iter().enumerate() {
            limit.check(&format!("errors[{place}]"), 1.0)?;
        }
        for (place, rule) in self.latency.iter().enumerate() {
            rule.limit.check(&format!("latency[{place}]"), 1e9)?;
        }
        if !(0.01..=1.0).contains(&self.burst.rate) {
            return Err(Error::invalid("burst.rate", self.burst.rate, "0.01 to 1"));
        }
        if !(1e-6..=0.5).contains(&self.alpha) {
            return Err(Error::invalid("alpha", self.alpha, "0.000001 to 0.5"));
        }
        if let Some(quality) = &self.quality {
            quality.design.check()?;
            if !(0.0..=1e12).contains(&quality.max_drop) {
                return Err(Error::invalid("quality.max_drop", quality.max_drop, "0 to 1e12"));
            }
        }
        Ok(())
    }

    pub(super) fn looks_at_baseline(&self) -> bool {
        let limits = self.errors.iter().chain(self.latency.iter().map(|rule| &rule.limit));
        let relative = |limit: &Limit| matches!(limit, Limit::TimesBaseline(_));
        self.quality.is_some() || limits.into_iter().any(relative)
    }

    /// The probability of a mistake that each test of each step may have.
    pub(super) fn alpha_each(&self) -> f64 {
        let rules =
            1 + self.errors.len() + self.latency.len() + usize::from(self.quality.is_some());
        self.alpha / (rules * self.steps.len().max(1)) as f64
    }
}
