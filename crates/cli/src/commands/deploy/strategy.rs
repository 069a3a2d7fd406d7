//! How the traffic of an endpoint is to find its way, in a few flags.

use clap::Args;
use serde_json::{Value, json};

use super::super::fields;

/// Flags for what people mostly want; `--spec` has the rest.
#[derive(Debug, Default, Args)]
pub(super) struct StrategyArgs {
    /// Let this variant take over step by step; it is taken away if it fails more or is slower.
    #[arg(long, value_name = "VARIANT", group = "strategy", conflicts_with = "spec")]
    canary: Option<String>,
    /// A step of the canary: `SHARE:REQUESTS:SECONDS` before the next.
    #[arg(long, value_name = "STEP", value_parser = Step::parse, requires = "canary")]
    step: Vec<Step>,
    /// Compare with this variant by reported outcomes, at fixed weights.
    #[arg(
        long,
        value_name = "VARIANT",
        group = "strategy",
        requires = "effect",
        conflicts_with = "spec"
    )]
    test: Option<String>,
    /// The smallest difference of outcomes that matters.
    #[arg(long, value_name = "DIFFERENCE", requires = "test", allow_hyphen_values = true)]
    effect: Option<f64>,
    /// Outcomes are 0 or 1, not any numbers.
    #[arg(long, requires = "test")]
    rate: bool,
    /// Give all of the traffic to the variant that is shown to be better.
    #[arg(long, requires = "test")]
    promote: bool,
    /// Give more of the traffic to variants with better outcomes, 0 to 1.
    #[arg(long, group = "strategy", conflicts_with = "spec")]
    bandit: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    share: f64,
    requests: u64,
    seconds: u64,
}

impl Step {
    fn parse(text: &str) -> Result<Self, String> {
        let shape = || "a step is `SHARE:REQUESTS:SECONDS`, such as `0.1:500:60`".to_owned();
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(shape);
        let step = Self {
            share: next()?.parse().map_err(|_| shape())?,
            requests: next()?.parse().map_err(|_| shape())?,
            seconds: next()?.parse().map_err(|_| shape())?,
        };
        if parts.next().is_some() { Err(shape()) } else { Ok(step) }
    }
}

/// What a canary goes through if nothing is said.
const USUAL_STEPS: [(f64, u64, u64); 3] = [(0.01, 100, 60), (0.1, 500, 60), (0.5, 1000, 60)];

impl StrategyArgs {
    /// The same in the words of the server; none if nothing is asked for.
    pub(super) fn written(&self) -> Option<Value> {
        if let Some(variant) = &self.canary {
            let usual =
                USUAL_STEPS.map(|(share, requests, seconds)| Step { share, requests, seconds });
            let steps = if self.step.is_empty() { &usual[..] } else { &self.step };
            let steps = steps.iter().map(|step| {
                json!({ "share": step.share, "min_requests": step.requests, "min_seconds": step.seconds })
            });
            return Some(json!({ "canary": {
                "variant": variant,
                "steps": steps.collect::<Vec<_>>(),
                "errors": [{ "times_baseline": 2.0 }],
                "latency": [{ "quantile": "p95", "limit": { "times_baseline": 2.0 } }],
            }}));
        }
        if let Some(control) = &self.test {
            return Some(json!({ "test": fields([
                ("control", Some(json!(control))),
                ("design", Some(json!({ "effect": self.effect }))),
                ("outcome", self.rate.then(|| json!("rate"))),
                ("then", self.promote.then(|| json!("promote"))),
            ])}));
        }
        self.bandit.then(|| json!({ "bandit": { "reward": "binary" } }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_three_parts() {
        let step = Step { share: 0.1, requests: 500, seconds: 60 };
        assert_eq!(Step::parse("0.1:500:60").unwrap(), step);
        for bad in ["", "0.1", "0.1:5", "x:1:1", "0.1:-1:1", "0.1:1:1:1"] {
            assert!(Step::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_asked_is_nothing_written() {
        assert_eq!(StrategyArgs::default().written(), None);
        let bandit = StrategyArgs { bandit: true, ..StrategyArgs::default() };
        assert_eq!(bandit.written().unwrap()["bandit"]["reward"], "binary");
        let canary = StrategyArgs { canary: Some("next".to_owned()), ..StrategyArgs::default() };
        assert_eq!(canary.written().unwrap()["canary"]["steps"].as_array().unwrap().len(), 3);
    }
}
