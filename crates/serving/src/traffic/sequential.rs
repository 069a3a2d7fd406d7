//! A against B, with answers that stay valid however often and whenever one looks.
//!
//! The difference of the means is compared with a mixture of alternatives, normal around zero with
//! the size of the difference that matters (a mixture sequential probability ratio test). Its
//! quotient against "no difference" is a martingale, so the chance that it ever reaches 1 / alpha
//! is alpha at most; turned around it gives intervals that cover the true difference at all times
//! together.
//!
//! Must hold:
//! - Which side a unit is on must not depend on earlier outcomes (a fixed split, or one that moves
//!   by a plan, with a test for each step). A bandit's own data does not belong here.
//! - The variance is estimated, so the guarantee is that of large samples: there is no answer
//!   before each side has [`Design::minimum`] outcomes and, for rates, before ten events and ten
//!   non-events are to be expected on the smaller side. The tests look after every single outcome.
//! - The interval at hand decides; a difference that was significant and went away does not.

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moments::Moments;
use super::version::Version;

/// Events and non-events expected on the smaller side before a rate is judged.
const EXPECTED: f64 = 10.0;

/// Which way is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    #[default]
    Higher,
    Lower,
}

/// What is asked of a test before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// The smallest difference that matters, in the unit of the outcome.
    pub effect: f64,
    /// The probability of finding a difference where there is none.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// Outcomes on each side before anything is said.
    #[serde(default = "default_minimum")]
    pub minimum: u64,
    #[serde(default)]
    pub goal: Goal,
}

fn default_alpha() -> f64 {
    0.05
}

fn default_minimum() -> u64 {
    100
}

impl Design {
    /// A test for this difference, with the usual certainty.
    #[must_use]
    pub fn of(effect: f64) -> Self {
        let (alpha, minimum) = (default_alpha(), default_minimum());
        Self { effect, alpha, minimum, goal: Goal::Higher }
    }

    pub fn check(&self) -> Result<()> {
        if !(1e-12..=1e12).contains(&self.effect) {
            return Err(Error::invalid("effect", self.effect, "1e-12 to 1e12"));
        }
        if !(1e-6..=0.5).contains(&self.alpha) {
            return Err(Error::invalid("alpha", self.alpha, "0.000001 to 0.5"));
        }
        if !(20..=1_000_000_000).contains(&self.minimum) {
            return Err(Error::invalid("minimum", self.minimum, "20 to 1000000000 outcomes"));
        }
        Ok(())
    }
}

/// The outcomes of one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcomes {
    /// It happened or it did not.
    Rate { events: u64, trials: u64 },
    /// Any number, of a variance nobody knows.
    Mean(Moments),
}

impl Outcomes {
    pub const RATE: Self = Self::Rate { events: 0, trials: 0 };
    pub const MEAN: fn() -> Self = || Self::Mean(Moments::default());

    /// For a rate: 0 or 1. For a mean: any number up to 1e100.
    pub fn record(&mut self, value: f64) -> Result<()> {
        match self {
            Self::Mean(moments) => moments.record(value),
            Self::Rate { events, trials } => {
                let happened = value > 0.5;
                #[allow(clippy::float_cmp, reason = "exactly zero or one is asked for")]
                if value != f64::from(u8::from(happened)) {
                    return Err(Error::invalid("value", value, "0 or 1"));
                }
                *trials = trials.saturating_add(1);
                *events = events.saturating_add(u64::from(happened));
                Ok(())
            }
        }
    }

    /// Adds another part's outcomes; a rate and a mean do not add up.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Mean(into), Self::Mean(from)) => into.merge(from),
            (Self::Rate { events, trials }, Self::Rate { events: more, trials: tried }) => {
                *events = events.saturating_add(*more);
                *trials = trials.saturating_add(*tried);
            }
            _ => return Err(mixed()),
        }
        Ok(())
    }

    #[must_use]
    pub fn count(&self) -> f64 {
        match self {
            Self::Rate { trials, .. } => *trials as f64,
            Self::Mean(moments) => moments.weight(),
        }
    }

    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        match self {
            _ if self.count() <= 0.0 => None,
            Self::Rate { events, trials } => Some((*events).min(*trials) as f64 / *trials as f64),
            Self::Mean(moments) => Some(moments.mean()),
        }
    }
}

fn mixed() -> Error {
    Error::invalid("outcomes", "a rate beside a mean", "the same kind on both sides")
}

/// What can be said of B minus A at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    pub difference: f64,
    /// Covers the true difference with probability 1 - alpha, at all times together.
    pub low: f64,
    pub high: f64,
    /// The always-valid p-value of this look alone.
    pub p: f64,
}

/// Compares two sides; none while there is too little to say anything.
pub fn compare(design: &Design, a: &Outcomes, b: &Outcomes) -> Result<Option<Comparison>> {
    let (Some(mean_a), Some(mean_b)) = (a.mean(), b.mean()) else { return Ok(None) };
    let (count_a, count_b) = (a.count(), b.count());
    let fewest = count_a.min(count_b);
    if fewest < design.minimum as f64 {
        return Ok(None);
    }
    let variance = match (a, b) {
        (Outcomes::Rate { .. }, Outcomes::Rate { .. }) => {
            let events = mean_a * count_a + mean_b * count_b;
            let pooled = smoothed(events, count_a + count_b);
            if fewest * pooled.min(1.0 - pooled) < EXPECTED {
                return Ok(None);
            }
            // Under "no difference" both have the pooled variance; the larger of the two keeps
            // interval and p-value of one mind.
            let spread = |p: f64| p * (1.0 - p);
            let (own_a, own_b) =
                (smoothed(mean_a * count_a, count_a), smoothed(mean_b * count_b, count_b));
            let apart = spread(own_a) / count_a + spread(own_b) / count_b;
            apart.max(spread(pooled) * (1.0 / count_a + 1.0 / count_b))
        }
        (Outcomes::Mean(a), Outcomes::Mean(b)) => {
            // One deviation as large as the effect is added, so that outcomes that were all alike
            // so far do not pass for certainty.
            let of = |moments: &Moments| {
                let scatter = moments.scatter() + design.effect * design.effect;
                scatter / (moments.weight() - 1.0) / moments.weight()
            };
            of(a) + of(b)
        }
        _ => return Err(mixed()),
    };
    let difference = mean_b - mean_a;
    let mixture = design.effect * design.effect;
    let both = variance + mixture;
    let spread_cost = 0.5 * (both / variance).ln();
    let evidence = difference * difference * mixture / (2.0 * variance * both) - spread_cost;
    let reach = (2.0 * variance * both / mixture * (spread_cost - design.alpha.ln())).sqrt();
    let (low, high) = (difference - reach, difference + reach);
    Ok(Some(Comparison { difference, low, high, p: (-evidence).exp().min(1.0) }))
}

fn smoothed(events: f64, trials: f64) -> f64 {
    (events + 0.5) / (trials + 1.0)
}

/// Which side an outcome belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    A,
    B,
}

/// A running test, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    version: Version<1>,
    pub design: Design,
    pub a: Outcomes,
    pub b: Outcomes,
    /// The smallest p-value of all looks.
    p: f64,
}

/// What a look at a test shows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    pub outcomes_a: f64,
    pub outcomes_b: f64,
    pub mean_a: Option<f64>,
    pub mean_b: Option<f64>,
    /// None while there are too few outcomes.
    pub comparison: Option<Comparison>,
    /// The always-valid p-value: the smallest of all looks.
    pub p: f64,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    KeepGoing,
    ABetter,
    BBetter,
    /// The whole interval lies closer to zero than the effect that matters.
    NoMeaningfulDifference,
}

impl Test {
    /// A test over outcomes of one kind, given by an empty one.
    pub fn new(design: Design, kind: Outcomes) -> Result<Self> {
        design.check()?;
        Ok(Self { version: Version, design, a: kind, b: kind, p: 1.0 })
    }

    pub fn record(&mut self, side: Side, value: f64) -> Result<()> {
        match side {
            Side::A => self.a.record(value),
            Side::B => self.b.record(value),
        }
    }

    /// Looks at the test. Looks cost nothing: however many there are, the promise holds.
    pub fn look(&mut self) -> Report {
        // The sides were made alike, and reading what was stored cannot make them differ in a way
        // that matters: no comparison is no decision.
        let comparison = compare(&self.design, &self.a, &self.b).unwrap_or(None);
        if let Some(now) = comparison {
            self.p = self.p.min(now.p);
        }
        Report {
            outcomes_a: self.a.count(),
            outcomes_b: self.b.count(),
            mean_a: self.a.mean(),
            mean_b: self.b.mean(),
            verdict: comparison.map_or(Verdict::KeepGoing, |now| verdict(&self.design, &now)),
            comparison,
            p: self.p,
        }
    }
}

fn verdict(design: &Design, now: &Comparison) -> Verdict {
    let higher = design.goal == Goal::Higher;
    if now.low > 0.0 {
        if higher { Verdict::BBetter } else { Verdict::ABetter }
    } else if now.high < 0.0 {
        if higher { Verdict::ABetter } else { Verdict::BBetter }
    } else if now.low > -design.effect && now.high < design.effect {
        Verdict::NoMeaningfulDifference
    } else {
        Verdict::KeepGoing
    }
}

#[cfg(test)]
mod tests;
