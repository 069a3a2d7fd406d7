//! How an endpoint's traffic is to find its way: what an operator asks for.

use falaj_base::{Error, Name, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::traffic::bandit::{Bandit, Config};
use crate::traffic::canary::Plan;
use crate::traffic::sequential::{Design, Outcomes};

/// What changes the shares of variants without anybody's doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TrafficStrategy")]
pub enum Strategy {
    /// One variant takes over step by step, or is taken away.
    Canary(Canary),
    /// Two variants are compared by their outcomes, while each keeps its weight.
    Test(Compared),
    /// The better the outcomes of a variant, the larger its share.
    Bandit(Config),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The variant that is to take over; all others are the baseline.
    pub variant: Name,
    #[serde(flatten)]
    pub plan: Plan,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// The variant that the other is compared with.
    pub control: Name,
    pub design: Design,
    /// What outcomes are.
    #[serde(default)]
    pub outcome: Kind,
    /// What happens once one is shown to be better.
    #[serde(default)]
    pub then: Then,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OutcomeKind")]
pub enum Kind {
    /// 0 or 1: it happened or it did not.
    Rate,
    /// Any number.
    #[default]
    Mean,
}

impl Kind {
    pub(super) fn empty(self) -> Outcomes {
        match self {
            Self::Rate => Outcomes::RATE,
            Self::Mean => Outcomes::MEAN(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It is told, and nothing changes.
    #[default]
    Tell,
    /// The better one takes all of the traffic.
    Promote,
}

impl Strategy {
    /// Refuses what cannot work with these variants, which share the traffic.
    pub(crate) fn check(&self, sharing: &[&Name]) -> Result<()> {
        match self {
            Self::Canary(canary) => {
                among("strategy.canary.variant", &canary.variant, sharing)?;
                if sharing.len() < 2 {
                    let allowed = "the canary and at least one other that takes requests";
                    return Err(Error::invalid("variants", sharing.len(), allowed));
                }
                canary.plan.check().map_err(|error| error.within("strategy.canary"))
            }
            Self::Test(test) => {
                among("strategy.test.control", &test.control, sharing)?;
                if sharing.len() != 2 {
                    let allowed = "two that take requests, to be compared";
                    return Err(Error::invalid("variants", sharing.len(), allowed));
                }
                test.design.check().map_err(|error| error.within("strategy.test.design"))
            }
            Self::Bandit(config) => {
                let names = sharing.iter().copied().cloned().collect();
                Bandit::new(*config, names, Timestamp::from_micros(0))
                    .map(drop)
                    .map_err(|error| error.within("strategy.bandit"))
            }
        }
    }

    /// Whether it learns from reported outcomes, so that every answer needs an id.
    pub(crate) fn wants_outcomes(&self) -> bool {
        match self {
            Self::Canary(canary) => canary.plan.quality.is_some(),
            Self::Test(_) | Self::Bandit(_) => true,
        }
    }
}

fn among(field: &str, name: &Name, sharing: &[&Name]) -> Result<()> {
    if sharing.contains(&name) {
        return Ok(());
    }
    let names: Vec<&str> = sharing.iter().map(|name| name.as_str()).collect();
    Err(Error::invalid(field, name, names.join(", ")))
}

/// Shares of the traffic, by variant.
pub(super) type Shares = Vec<(Name, f64)>;

/// A number of variants, as something to divide by.
pub(super) fn few(count: usize) -> f64 {
    u32::try_from(count.max(1)).map_or(f64::MAX, f64::from)
}

/// `share` for one variant; the others have the rest in proportion to their weights.
pub(super) fn shares_with(one: &Name, share: f64, weights: &[(Name, f64)]) -> Shares {
    let others = || weights.iter().filter(|(name, _)| name != one);
    let sum: f64 = others().map(|(_, weight)| weight).sum();
    let count = few(others().count());
    let part = |weight: f64| if sum > 0.0 { weight / sum } else { 1.0 / count };
    let shared = weights.iter().map(|(name, weight)| {
        let share = if name == one { share } else { (1.0 - share) * part(*weight) };
        (name.clone(), share)
    });
    shared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn the_rest_is_shared_by_weight() {
        let weights = [(name("a"), 3.0), (name("b"), 1.0), (name("c"), 7.0)];
        let found = shares_with(&name("c"), 0.2, &weights);
        let wanted = [("a", 0.6), ("b", 0.2), ("c", 0.2)];
        for ((found, share), (name, wanted)) in found.iter().zip(wanted) {
            assert_eq!(found.as_str(), name);
            assert!((share - wanted).abs() < 1e-12);
        }
        let none = [(name("a"), 0.0), (name("b"), 0.0), (name("c"), 1.0)];
        let found = shares_with(&name("c"), 0.5, &none);
        assert!(found[..2].iter().all(|(_, share)| (share - 0.25).abs() < 1e-12));
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_field() {
        let (a, b, c) = (name("a"), name("b"), name("c"));
        let field = |json: &str, sharing: &[&Name]| {
            let strategy: Strategy = serde_json::from_str(json).unwrap();
            strategy.check(sharing).err().and_then(|error| error.field().map(str::to_owned))
        };
        let canary = |rest: &str| format!(r#"{{"canary":{{"variant":"b",{rest}}}}}"#);
        let good = canary(r#""steps":[{"share":0.1}]"#);
        assert_eq!(field(&good, &[&a, &b]), None);
        assert_eq!(field(&good, &[&b]).as_deref(), Some("variants"));
        assert_eq!(field(&good, &[&a, &c]).as_deref(), Some("strategy.canary.variant"));
        let bad = canary(r#""steps":[{"share":2.0}]"#);
        assert_eq!(field(&bad, &[&a, &b]).as_deref(), Some("strategy.canary.steps[0].share"));
        let test = r#"{"test":{"control":"a","design":{"effect":0.1}}}"#;
        assert_eq!(field(test, &[&a, &b]), None);
        assert_eq!(field(test, &[&a, &b, &c]).as_deref(), Some("variants"));
        let bad = r#"{"test":{"control":"a","design":{"effect":-1}}}"#;
        assert_eq!(field(bad, &[&a, &b]).as_deref(), Some("strategy.test.design.effect"));
        let bandit = r#"{"bandit":{"reward":"binary","floor":0.6}}"#;
        assert_eq!(field(bandit, &[&a, &b]).as_deref(), Some("strategy.bandit.floor"));
        let unknown = r#"{"canary":{"variant":"b","steps":[{"share":0.1}],"stepz":1}}"#;
        assert!(serde_json::from_str::<Strategy>(unknown).is_err());
    }
}
