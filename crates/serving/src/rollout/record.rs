//! What an endpoint's traffic has shown in this round, and what follows from it: pure.

use std::collections::BTreeMap;

use falaj_base::{Error, Name, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::strategy::{Canary, Compared, Shares, Strategy, Then, few, shares_with};
use crate::traffic::bandit::Bandit;
use crate::traffic::canary::{Decision, Observed, Rollout};
use crate::traffic::random::Source;
use crate::traffic::sequential::{Outcomes, Side, Test, Verdict};
use crate::traffic::shadow::Shadow;
use crate::traffic::version::Version;

/// How often a bandit's shares change, and by how much at least: every change makes all servers
/// read the endpoint again.
const SHARE_EVERY_SECONDS: u64 = 10;
const SHARE_STEP: f64 = 0.01;
/// How many draws the shares of a bandit rest on.
const DRAWS: u32 = 4000;

/// What one server saw since it last told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(super) variants: BTreeMap<Name, Observed>,
    pub(super) shadows: BTreeMap<Name, Shadow>,
}

impl Seen {
    pub(super) fn is_empty(&self) -> bool {
        self.variants.is_empty() && self.shadows.is_empty()
    }

    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        for (name, seen) in &other.variants {
            self.variants.entry(name.clone()).or_default().merge(seen)?;
        }
        for (name, seen) in &other.shadows {
            self.shadows.entry(name.clone()).or_default().merge(seen);
        }
        Ok(())
    }
}

/// The record of a round, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: Version<1>,
    pub(super) since: Timestamp,
    pub(super) progress: Option<Progress>,
    pub(super) variants: BTreeMap<Name, Observed>,
    pub(super) shadows: BTreeMap<Name, Shadow>,
    /// What was decided last, in this round or before it.
    pub(super) decided: Option<Decided>,
}

/// How far a strategy has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Progress {
    Canary(Box<Rollout>),
    Test { test: Test, told: bool },
    Bandit { bandit: Bandit, shared_at: Timestamp },
}

/// A decision, when it fell, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decided {
    pub(crate) at: Timestamp,
    /// The type of its event.
    pub(crate) event: String,
    pub(crate) why: Value,
}

/// What follows from a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// Nothing changes.
    Stay,
    /// Something is known now, and told; the shares stay.
    Tell { event: &'static str, why: Value },
    /// Other shares.
    Share { event: &'static str, shares: Shares, why: Value },
    /// Only these go on, without the strategy.
    End { event: &'static str, left: Vec<Name>, why: Value },
}

impl Record {
    /// An empty record, and the shares to begin with, if the strategy says so.
    pub(super) fn begin(
        strategy: Option<&Strategy>,
        weights: &[(Name, f64)],
        now: Timestamp,
        decided: Option<Decided>,
    ) -> Result<(Self, Option<Shares>)> {
        let (progress, shares) = match strategy {
            None => (None, None),
            Some(Strategy::Canary(canary)) => {
                let rollout = Rollout::new(canary.plan.clone(), now)?;
                let shares = shares_with(&canary.variant, rollout.share(), weights);
                (Some(Progress::Canary(Box::new(rollout))), Some(shares))
            }
            Some(Strategy::Test(test)) => {
                let test = Test::new(test.design, test.outcome.empty())?;
                (Some(Progress::Test { test, told: false }), None)
            }
            Some(Strategy::Bandit(config)) => {
                let names: Vec<Name> = weights.iter().map(|(name, _)| name.clone()).collect();
                let even = 1.0 / few(names.len());
                let shares = names.iter().map(|name| (name.clone(), even)).collect();
                let bandit = Bandit::new(*config, names, now)?;
                (Some(Progress::Bandit { bandit, shared_at: now }), Some(shares))
            }
        };
        let (variants, shadows) = (BTreeMap::new(), BTreeMap::new());
        let record = Self { version: Version, since: now, progress, variants, shadows, decided };
        Ok((record, shares))
    }

    /// Adds what a server saw.
    pub(super) fn add(&mut self, seen: &Seen, strategy: Option<&Strategy>) -> Result<()> {
        for (name, one) in &seen.variants {
            self.variants.entry(name.clone()).or_default().merge(one)?;
            if let (Some(Progress::Canary(rollout)), Some(Strategy::Canary(canary))) =
                (&mut self.progress, strategy)
            {
                side(rollout, canary, name).merge(one)?;
            }
        }
        for (name, shadow) in &seen.shadows {
            self.shadows.entry(name.clone()).or_default().merge(shadow);
        }
        Ok(())
    }

    /// Counts an outcome of a variant.
    pub(super) fn outcome(
        &mut self,
        variant: &Name,
        value: f64,
        strategy: &Strategy,
        now: Timestamp,
    ) -> Result<()> {
        match (&mut self.progress, strategy) {
            (Some(Progress::Canary(rollout)), Strategy::Canary(canary)) => {
                side(rollout, canary, variant).outcome(Outcomes::MEAN(), value)?;
            }
            (Some(Progress::Test { test, .. }), Strategy::Test(compared)) => {
                let side = if *variant == compared.control { Side::A } else { Side::B };
                test.record(side, value)?;
            }
            (Some(Progress::Bandit { bandit, .. }), Strategy::Bandit(_)) => {
                bandit.record(variant, value, now)?;
            }
            _ => return Err(Error::internal("a record of another strategy")),
        }
        let kind = match strategy {
            Strategy::Test(test) => test.outcome.empty(),
            Strategy::Canary(_) | Strategy::Bandit(_) => Outcomes::MEAN(),
        };
        self.variants.entry(variant.clone()).or_default().outcome(kind, value)
    }

    /// What follows, and is noted here, once it is done. `shares` are those of now.
    pub(super) fn judge(
        &mut self,
        strategy: &Strategy,
        shares: &[(Name, f64)],
        weights: &[(Name, f64)],
        now: Timestamp,
        source: &mut impl Source,
    ) -> Move {
        let Some(progress) = &mut self.progress else { return Move::Stay };
        let next = match (progress, strategy) {
            (Progress::Canary(rollout), Strategy::Canary(canary)) => {
                stepped(rollout, canary, weights, now)
            }
            (Progress::Test { test, told }, Strategy::Test(compared)) if !*told => {
                let found = compared_now(test, compared, weights);
                *told = found != Move::Stay;
                found
            }
            (Progress::Bandit { bandit, shared_at }, Strategy::Bandit(_))
                if now.since(*shared_at).as_secs() >= SHARE_EVERY_SECONDS =>
            {
                *shared_at = now;
                shared(bandit, shares, now, source)
            }
            _ => Move::Stay,
        };
        if let Move::Tell { event, why }
        | Move::Share { event, why, .. }
        | Move::End { event, why, .. } = &next
        {
            self.decided = Some(Decided { at: now, event: (*event).to_owned(), why: why.clone() });
        }
        next
    }
}

fn side<'a>(rollout: &'a mut Rollout, canary: &Canary, variant: &Name) -> &'a mut Observed {
    if *variant == canary.variant { &mut rollout.canary } else { &mut rollout.baseline }
}

fn stepped(
    rollout: &mut Rollout,
    canary: &Canary,
    weights: &[(Name, f64)],
    now: Timestamp,
) -> Move {
    let decision = rollout.decide(now);
    if let Decision::Wait { .. } = decision {
        return Move::Stay;
    }
    let mut why = serde_json::to_value(&decision).unwrap_or_default();
    why["variant"] = json!(canary.variant);
    // What was seen in the step that is over.
    why["step"] = json!(rollout.step() + 1);
    why["canary"] = figures(&rollout.canary);
    why["baseline"] = figures(&rollout.baseline);
    match decision {
        Decision::Wait { .. } => Move::Stay,
        Decision::Advance { share } => {
            rollout.advance(now);
            let shares = shares_with(&canary.variant, share, weights);
            Move::Share { event: "endpoint.advanced", shares, why }
        }
        Decision::Promote => {
            Move::End { event: "endpoint.promoted", left: vec![canary.variant.clone()], why }
        }
        Decision::RollBack { .. } => {
            let others = weights.iter().map(|(name, _)| name);
            let left = others.filter(|name| **name != canary.variant).cloned().collect();
            Move::End { event: "endpoint.rolled-back", left, why }
        }
    }
}

/// What a side did, for people.
fn figures(seen: &Observed) -> Value {
    let outcomes = seen.outcomes.as_ref();
    json!({
        "requests": seen.requests,
        "errors": seen.errors,
        "p50": seen.latency.quantile(0.5),
        "p95": seen.latency.quantile(0.95),
        "p99": seen.latency.quantile(0.99),
        "outcomes": outcomes.map(Outcomes::count),
        "mean_outcome": outcomes.and_then(Outcomes::mean),
    })
}

fn compared_now(test: &mut Test, compared: &Compared, weights: &[(Name, f64)]) -> Move {
    let found = test.look();
    let other = weights.iter().map(|(name, _)| name).find(|name| **name != compared.control);
    let better = match found.verdict {
        Verdict::KeepGoing => return Move::Stay,
        Verdict::ABetter => Some(&compared.control),
        Verdict::BBetter => other,
        Verdict::NoMeaningfulDifference => None,
    };
    let mut why = serde_json::to_value(&found).unwrap_or_default();
    why["control"] = json!(compared.control);
    why["better"] = json!(better);
    match (better, compared.then) {
        (Some(better), Then::Promote) => {
            Move::End { event: "endpoint.promoted", left: vec![better.clone()], why }
        }
        _ => Move::Tell { event: "endpoint.compared", why },
    }
}

fn shared(
    bandit: &Bandit,
    shares: &[(Name, f64)],
    now: Timestamp,
    source: &mut impl Source,
) -> Move {
    let next = bandit.weights(now, DRAWS, source);
    let moved = next.iter().any(|next| {
        let now = shares.iter().find(|(name, _)| *name == next.variant);
        now.is_none_or(|(_, share)| (share - next.weight).abs() >= SHARE_STEP)
    });
    if !moved {
        return Move::Stay;
    }
    let earned = bandit.earned().map(
        |(variant, mean, weight)| json!({ "variant": variant, "mean": mean, "outcomes": weight }),
    );
    let why = json!({ "earned": earned.collect::<Vec<_>>() });
    let shares = next.into_iter().map(|next| (next.variant, next.weight)).collect();
    Move::Share { event: "endpoint.shared", shares, why }
}

#[cfg(test)]
mod tests;
