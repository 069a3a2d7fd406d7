//! What a record shows, for people.

use std::collections::BTreeMap;

use falaj_base::{Name, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::record::{Decided, Progress, Record};
use super::strategy::Strategy;
use crate::endpoint::Endpoint;
use crate::traffic::canary::{Decision, Observed};
use crate::traffic::sequential::{self, Outcomes};
use crate::traffic::shadow;

/// How the traffic of an endpoint goes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "EndpointTraffic")]
pub(crate) struct Report {
    pub(crate) revision: i64,
    /// Since when what is shown was seen: another version begins anew.
    pub(crate) since: Option<Timestamp>,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) variants: Vec<Variant>,
    pub(crate) canary: Option<CanaryNow>,
    pub(crate) test: Option<sequential::Report>,
    /// The shadows, compared with what callers were given.
    pub(crate) shadows: BTreeMap<Name, shadow::Report>,
    /// What was decided last.
    pub(crate) decided: Option<Decided>,
}

/// What a variant did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "VariantTraffic")]
pub(crate) struct Variant {
    name: Name,
    version: i64,
    /// The part of the requests that it gets now.
    share: f64,
    requests: u64,
    errors: u64,
    /// Milliseconds of those that were answered.
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    outcomes: f64,
    mean_outcome: Option<f64>,
}

/// How far a canary is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CanaryNow {
    /// The step under way, from 1, and how many there are.
    step: usize,
    steps: usize,
    /// What follows from what was seen in this step.
    next: Decision,
}

impl Report {
    pub(super) fn of(endpoint: &Endpoint, record: Option<Record>, now: Timestamp) -> Self {
        let mut record = record;
        let nothing = Observed::default();
        let shares = endpoint.shares();
        let variants = endpoint.running.iter().map(|running| {
            let seen = record.as_ref().and_then(|kept| kept.variants.get(&running.variant));
            let seen = seen.unwrap_or(&nothing);
            let share = shares.iter().find(|(name, _)| *name == running.variant);
            Variant {
                name: running.variant.clone(),
                version: running.version,
                share: share.map_or(0.0, |(_, share)| *share),
                requests: seen.requests,
                errors: seen.errors,
                p50: seen.latency.quantile(0.5),
                p95: seen.latency.quantile(0.95),
                p99: seen.latency.quantile(0.99),
                outcomes: seen.outcomes.as_ref().map_or(0.0, Outcomes::count),
                mean_outcome: seen.outcomes.as_ref().and_then(Outcomes::mean),
            }
        });
        let variants = variants.collect();
        let (mut canary, mut test) = (None, None);
        match record.as_mut().and_then(|kept| kept.progress.as_mut()) {
            Some(Progress::Canary(rollout)) => {
                canary = Some(CanaryNow {
                    step: rollout.step() + 1,
                    steps: rollout.plan().steps.len(),
                    next: rollout.decide(now),
                });
            }
            Some(Progress::Test { test: running, .. }) => test = Some(running.look()),
            Some(Progress::Bandit { .. }) | None => {}
        }
        let shadows = record.iter().flat_map(|kept| &kept.shadows);
        Self {
            revision: endpoint.revision,
            strategy: endpoint.spec.strategy.clone(),
            shadows: shadows.map(|(name, shadow)| (name.clone(), shadow.report())).collect(),
            variants,
            canary,
            test,
            since: record.as_ref().map(|kept| kept.since),
            decided: record.and_then(|kept| kept.decided),
        }
    }
}
