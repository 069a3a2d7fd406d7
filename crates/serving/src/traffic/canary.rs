//! A new version gets a little of the traffic, then more, then all of it, or none.
//!
//! Must hold:
//! - Nothing is decided on too little: a step has a least number of requests and a least time. The
//!   one exception is a burst of errors, which ends it at once.
//! - Rolling back needs proof, advancing needs that every rule is kept. In between it waits. Looks
//!   are free: every test is valid however often one looks, and the probability of rolling back a
//!   version that keeps every rule is at most [`Plan::alpha`] over all steps and rules together.
//! - Each step is judged on its own requests: what was measured under another split is confounded
//!   with the time it was measured at.

mod observed;
mod plan;

pub use observed::Observed;
pub use plan::{Burst, LatencyRule, Limit, Plan, Quality, Quantile, Step};

use std::fmt;

use falaj_base::{Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::excess::exceeds;
use super::sequential::{Design, Goal, compare};
use super::version::Version;

/// What a rollout can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    ErrorBurst,
    ErrorRate,
    Latency(Quantile),
    Quality,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ErrorBurst => "error_burst",
            Self::ErrorRate => "error_rate",
            Self::Latency(Quantile::P50) => "latency_p50",
            Self::Latency(Quantile::P95) => "latency_p95",
            Self::Latency(Quantile::P99) => "latency_p99",
            Self::Quality => "quality",
        })
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Rule {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CanaryRule".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let all = [Self::ErrorBurst, Self::ErrorRate, Self::Quality].map(|rule| rule.to_string());
        let latency = Quantile::ALL.map(|quantile| Self::Latency(quantile).to_string());
        let names: Vec<_> = all.into_iter().chain(latency).collect();
        schemars::json_schema!({"type": "string", "enum": names})
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum Decision {
    Wait {
        #[serde(flatten)]
        reason: Reason,
    },
    /// On to the next step, with this share of the traffic.
    Advance {
        share: f64,
    },
    /// The last step was passed: the new version is the version.
    Promote,
    RollBack {
        rule: Rule,
        observed: f64,
        allowed: f64,
    },
}

/// Why nothing is decided yet.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Reason {
    TooFewRequests {
        seen: u64,
        wanted: u64,
    },
    TooFewBaselineRequests {
        seen: u64,
        wanted: u64,
    },
    TooEarly {
        seconds: u64,
        wanted: u64,
    },
    /// Over the limit so far, but it may be chance.
    Unsure {
        rule: Rule,
        observed: f64,
        allowed: f64,
    },
    /// Quality is to be proven, and there are too few outcomes to say anything.
    TooFewOutcomes,
}

/// A rollout under way, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    version: Version<1>,
    plan: Plan,
    step: usize,
    since: Timestamp,
    /// What was seen in this step.
    pub canary: Observed,
    pub baseline: Observed,
}

enum Judged {
    Kept,
    Unsure(f64, f64),
    Broken(f64, f64),
}

impl Rollout {
    pub fn new(plan: Plan, now: Timestamp) -> Result<Self> {
        plan.check()?;
        let (canary, baseline) = (Observed::default(), Observed::default());
        Ok(Self { version: Version, plan, step: 0, since: now, canary, baseline })
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Which step is under way, counted from zero.
    #[must_use]
    pub fn step(&self) -> usize {
        self.step
    }

    /// The part of the traffic that the new version gets now.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.current().share
    }

    /// Goes to the next step, if there is one, and forgets what was seen in this one.
    pub fn advance(&mut self, now: Timestamp) {
        if self.step + 1 < self.plan.steps.len() {
            self.step += 1;
        }
        self.since = now;
        self.canary = Observed::default();
        // With all of the traffic gone nothing new is seen of the baseline: its last figures stay
        // as the measure.
        if self.share() < 1.0 {
            self.baseline = Observed::default();
        }
    }

    #[must_use]
    pub fn decide(&self, now: Timestamp) -> Decision {
        let step = self.current();
        let burst = &self.plan.burst;
        if let Judged::Broken(observed, allowed) =
            self.judge_rate(self.canary.errors, self.canary.requests, burst.rate)
            && self.canary.errors >= burst.errors
        {
            return Decision::RollBack { rule: Rule::ErrorBurst, observed, allowed };
        }
        if let Some(reason) = self.too_little(&step, now) {
            return Decision::Wait { reason };
        }
        let mut unsure = None;
        for (rule, judged) in self.judged(&step) {
            match judged {
                Judged::Kept => {}
                Judged::Unsure(observed, allowed) => {
                    unsure.get_or_insert(Reason::Unsure { rule, observed, allowed });
                }
                Judged::Broken(observed, allowed) => {
                    return Decision::RollBack { rule, observed, allowed };
                }
            }
        }
        if unsure.is_none() && self.unproven(&step) {
            unsure = Some(Reason::TooFewOutcomes);
        }
        match (unsure, self.plan.steps.get(self.step + 1)) {
            (Some(reason), _) => Decision::Wait { reason },
            (None, Some(next)) => Decision::Advance { share: next.share },
            (None, None) => Decision::Promote,
        }
    }

    fn current(&self) -> Step {
        // A stored step beyond the plan cannot be passed: it reads as the last.
        self.plan.steps.get(self.step).or(self.plan.steps.last()).copied().unwrap_or(Step::ALL)
    }

    fn too_little(&self, step: &Step, now: Timestamp) -> Option<Reason> {
        let wanted = step.min_requests;
        let seen = self.canary.requests;
        if seen < wanted {
            return Some(Reason::TooFewRequests { seen, wanted });
        }
        let seen = self.baseline.requests;
        if step.share < 1.0 && self.plan.looks_at_baseline() && seen < wanted.max(1) {
            return Some(Reason::TooFewBaselineRequests { seen, wanted: wanted.max(1) });
        }
        let (seconds, wanted) = (now.since(self.since).as_secs(), step.min_seconds);
        (seconds < wanted).then_some(Reason::TooEarly { seconds, wanted })
    }

    /// Every rule that can be judged, in the order of the plan.
    fn judged(&self, step: &Step) -> Vec<(Rule, Judged)> {
        let (canary, baseline) = (&self.canary, &self.baseline);
        let mut all = Vec::new();
        for limit in &self.plan.errors {
            if let Some(allowed) = limit.allowed(baseline.error_rate()) {
                let judged = self.judge_rate(canary.errors, canary.requests, allowed);
                all.push((Rule::ErrorRate, judged));
            }
        }
        for LatencyRule { quantile, limit } in &self.plan.latency {
            let q = quantile.share();
            let Some(allowed) = limit.allowed(baseline.latency.quantile(q)) else { continue };
            // "The 95th percentile is at most L" says "at most 5 % take longer than L".
            let slow = canary.latency.above(allowed);
            let observed = canary.latency.quantile(q).unwrap_or(0.0);
            let judged = match self.judge_rate(slow, canary.latency.count(), 1.0 - q) {
                Judged::Kept => Judged::Kept,
                Judged::Unsure(..) => Judged::Unsure(observed, allowed),
                Judged::Broken(..) => Judged::Broken(observed, allowed),
            };
            all.push((Rule::Latency(*quantile), judged));
        }
        if let Some(judged) = self.quality(step) {
            all.push((Rule::Quality, judged));
        }
        all
    }

    fn judge_rate(&self, events: u64, trials: u64, allowed: f64) -> Judged {
        let observed = if trials == 0 { 0.0 } else { events as f64 / trials as f64 };
        if observed <= allowed {
            Judged::Kept
        } else if exceeds(events, trials, allowed, self.plan.alpha_each()) {
            Judged::Broken(observed, allowed)
        } else {
            Judged::Unsure(observed, allowed)
        }
    }

    /// How quality stands; none without enough outcomes on both sides, and none once there is no
    /// baseline at the same time.
    fn quality(&self, step: &Step) -> Option<Judged> {
        let rule = self.plan.quality.as_ref().filter(|_| step.share < 1.0)?;
        let (Some(canary), Some(baseline)) = (&self.canary.outcomes, &self.baseline.outcomes)
        else {
            return None;
        };
        let design = Design { alpha: self.plan.alpha_each(), ..rule.design };
        let found = compare(&design, baseline, canary).ok().flatten()?;
        let (worst, best, difference) = match design.goal {
            Goal::Higher => (found.low, found.high, found.difference),
            Goal::Lower => (-found.high, -found.low, -found.difference),
        };
        let allowed = -rule.max_drop;
        Some(if best < allowed {
            Judged::Broken(difference, allowed)
        } else if rule.prove && worst <= allowed {
            Judged::Unsure(difference, allowed)
        } else {
            Judged::Kept
        })
    }

    /// Whether quality is to be proven in this step and cannot even be judged yet.
    fn unproven(&self, step: &Step) -> bool {
        let wanted = self.plan.quality.as_ref().is_some_and(|rule| rule.prove);
        wanted && step.share < 1.0 && self.quality(step).is_none()
    }
}

#[cfg(test)]
mod tests;
