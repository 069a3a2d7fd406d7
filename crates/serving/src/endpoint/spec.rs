//! What an operator asks of an endpoint.

use std::collections::HashSet;
use std::time::Duration;

use falaj_base::{Error, HumanDuration, Name, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rate::Rate;
use crate::remote::Remote;
use crate::rollout::Strategy;
use crate::runtime::{Batching, Settings};

/// The most variants of one endpoint.
const MAX_VARIANTS: usize = 16;

/// What an endpoint serves, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Who answers.
    #[schemars(length(min = 1, max = 16))]
    pub variants: Vec<Variant>,
    /// How each variant runs.
    #[serde(default)]
    pub runs: Runs,
    /// The share of requests whose inputs and answers are kept, 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub log: f64,
    /// How long requests that were kept stay; as `serving.predictions.keep` says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_predictions: Option<HumanDuration>,
    /// How often one caller may ask, by its token; as often as it likes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// What changes the shares of variants: a canary, a test, a bandit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
}

/// One of those who answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: Name,
    /// The registered model; none for one on another server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub model: String,
    /// A model that another server computes, in place of a registered one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// The version's number; without it and without an alias the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// The alias that it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub alias: Option<String>,
    /// Its share of the requests, relative to the others'.
    #[serde(default = "one")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub weight: f64,
    /// Makes it a shadow: this share of the requests, 0 to 1, is repeated to it, and its answers
    /// are compared and given to nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub shadow: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// How a model runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Runs {
    /// How many requests are computed at a time; 0 means one for each processor.
    #[schemars(range(min = 0, max = 64))]
    pub instances: usize,
    /// Requests that are computed together.
    pub batch: Batch,
    /// How many requests may wait.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_queue: usize,
    /// How long a request may take, waiting included.
    pub timeout: HumanDuration,
    /// Whether answers are kept and given again for the same inputs.
    pub cache: bool,
}

/// Requests that are computed together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Batch {
    /// The most rows; 1 means that no request shares a run.
    #[schemars(range(min = 1, max = 4096))]
    pub max_rows: usize,
    /// How long a request waits for others while an instance has nothing to do.
    pub delay: HumanDuration,
    /// Sizes that the model computes best.
    pub preferred: Vec<usize>,
    /// Whether requests share runs also of a model whose answers were found to change with the
    /// batch, or could not be compared.
    pub even_if_answers_change: bool,
}

impl Default for Runs {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            instances: settings.instances,
            batch: Batch::default(),
            max_queue: settings.max_queue,
            timeout: HumanDuration::from(settings.timeout),
            cache: settings.cache,
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        let Batching { max_rows, delay, preferred } = Batching::default();
        Self {
            max_rows,
            delay: HumanDuration::from(delay),
            preferred,
            even_if_answers_change: false,
        }
    }
}

impl Runs {
    /// The same in the words of the runtime.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            instances: self.instances,
            batching: Batching {
                max_rows: self.batch.max_rows,
                delay: self.batch.delay.into(),
                preferred: self.batch.preferred.clone(),
            },
            max_queue: self.max_queue,
            timeout: self.timeout.into(),
            cache: self.cache,
            ..Settings::default()
        }
    }
}

/// No request is worth waiting longer for than a connection lives.
const MAX_TIMEOUT: Duration = Duration::from_hours(1);

/// Ten years.
const MAX_KEEP: Duration = Duration::from_hours(3650 * 24);

impl Spec {
    /// Refuses what cannot work, naming the field.
    pub fn check(&self) -> Result<()> {
        let count = self.variants.len();
        if !(1..=MAX_VARIANTS).contains(&count) {
            return Err(Error::invalid("variants", count, format!("1 to {MAX_VARIANTS}")));
        }
        let mut names = HashSet::new();
        for (place, variant) in self.variants.iter().enumerate() {
            if !names.insert(&variant.name) {
                let field = format!("variants[{place}].name");
                return Err(Error::invalid(field, &variant.name, "each name once"));
            }
            variant.check().map_err(|(field, value, allowed)| {
                Error::invalid(format!("variants[{place}].{field}"), value, allowed)
            })?;
        }
        if self.weights().iter().map(|(_, weight)| weight).sum::<f64>() <= 0.0 {
            let allowed = "at least one that is greater than 0";
            return Err(Error::invalid("variants.weight", "all are 0", allowed));
        }
        if !(0.0..=1.0).contains(&self.log) {
            return Err(Error::invalid("log", self.log, "0 to 1"));
        }
        if let Some(keep) = self.keep_predictions.filter(|keep| keep.get() > MAX_KEEP) {
            return Err(Error::invalid("keep_predictions", keep, "at most 3650d"));
        }
        if let Some(rate) = &self.rate {
            rate.check()?;
        }
        if Duration::from(self.runs.timeout) > MAX_TIMEOUT {
            return Err(Error::invalid("runs.timeout", self.runs.timeout, "at most 1h"));
        }
        if let Some(strategy) = &self.strategy {
            let weights = self.weights();
            strategy.check(&weights.iter().map(|(name, _)| name).collect::<Vec<_>>())?;
        }
        self.runs.settings().check()
    }

    /// The variants that requests are shared among, and their weights: all but shadows.
    pub(crate) fn weights(&self) -> Vec<(Name, f64)> {
        let sharing = self.variants.iter().filter(|variant| variant.shadow.is_none());
        sharing.map(|variant| (variant.name.clone(), variant.weight)).collect()
    }

    /// Whether something follows from what its variants do.
    pub(crate) fn watches(&self) -> bool {
        self.strategy.is_some() || self.variants.iter().any(|variant| variant.shadow.is_some())
    }

    /// Whether what it serves changes when an alias moves.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.variants.iter().any(|variant| variant.alias.is_some())
    }
}

impl Variant {
    fn check(&self) -> std::result::Result<(), (&'static str, String, &'static str)> {
        match &self.remote {
            None if self.model.is_empty() => {
                return Err(("model", "missing".to_owned(), "a registered model, or `remote`"));
            }
            Some(_) if !self.model.is_empty() => {
                return Err(("remote", "beside a model".to_owned(), "a model or a remote one"));
            }
            Some(_) if self.version.is_some() || self.alias.is_some() => {
                let allowed = "nothing beside `remote`, which has a version of its own";
                return Err(("version", "beside a remote model".to_owned(), allowed));
            }
            Some(remote) => remote.check()?,
            None => {}
        }
        if self.version.is_some() && self.alias.is_some() {
            return Err(("alias", "beside a version".to_owned(), "a version or an alias"));
        }
        if let Some(version) = self.version.filter(|&version| version < 1) {
            return Err(("version", version.to_string(), "1 or more"));
        }
        if !(0.0..=1_000_000.0).contains(&self.weight) {
            return Err(("weight", self.weight.to_string(), "0 to 1000000"));
        }
        if let Some(share) = self.shadow.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(("shadow", share.to_string(), "0 to 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mistakes_are_named() {
        let variant = json!({ "name": "a", "model": "m", "version": 1 });
        let far = json!({ "url": "https://h", "model": "m" });
        for (spec, field) in [
            (json!({ "variants": [] }), "variants"),
            (json!({ "variants": [variant, variant] }), "variants[1].name"),
            (
                json!({ "variants": [{ "name": "a", "model": "m", "version": 1, "alias": "b" }] }),
                "variants[0].alias",
            ),
            (
                json!({ "variants": [{ "name": "a", "model": "m", "version": 0 }] }),
                "variants[0].version",
            ),
            (
                json!({ "variants": [{ "name": "a", "model": "m", "weight": -1.0 }] }),
                "variants[0].weight",
            ),
            (
                json!({ "variants": [{ "name": "a", "model": "m", "weight": 0.0 }] }),
                "variants.weight",
            ),
            (json!({ "variants": [{ "name": "a" }] }), "variants[0].model"),
            (
                json!({ "variants": [{ "name": "a", "model": "m", "remote": far }] }),
                "variants[0].remote",
            ),
            (
                json!({ "variants": [{ "name": "a", "version": 1, "remote": far }] }),
                "variants[0].version",
            ),
            (
                json!({ "variants": [{ "name": "a", "remote": { "url": "x", "model": "m" } }] }),
                "variants[0].remote.url",
            ),
            (json!({ "variants": [variant], "log": 1.5 }), "log"),
            (json!({ "variants": [variant], "keep_predictions": "3651d" }), "keep_predictions"),
            (json!({ "variants": [variant], "rate": { "per_second": 0 } }), "rate.per_second"),
            (json!({ "variants": [variant], "runs": { "instances": 100 } }), "instances"),
            (json!({ "variants": [variant], "runs": { "timeout": "2h" } }), "runs.timeout"),
            (
                json!({ "variants": [variant], "runs": { "batch": { "max_rows": 0 } } }),
                "batching.max_rows",
            ),
        ] {
            let spec: Spec = serde_json::from_value(spec).unwrap();
            assert_eq!(spec.check().unwrap_err().field(), Some(field));
        }
        let spec: Spec = serde_json::from_value(json!({ "variants": [variant] })).unwrap();
        spec.check().unwrap();
        assert!(!spec.follows());
        assert_eq!(spec.runs.settings(), Settings::default());
    }
}
