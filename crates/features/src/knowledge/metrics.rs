//! How old views are, and whether both their stores say the same, for Prometheus.
//!
//! Must hold: labels name views whose definition says how fresh they must be, or how often they are
//! compared, of which there is a limit. They are told by the server that looks at them.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::freshness::Freshness;
use super::skew::Skew;
use crate::Features;

/// Series at most.
const MOST: usize = 10_000;

/// How fresh views were found to be, with their projects.
#[derive(Debug, Default)]
pub(crate) struct Ages(Mutex<Vec<(String, Freshness)>>);

impl Ages {
    pub(super) fn replace(&self, mut all: Vec<(String, Freshness)>) {
        all.truncate(MOST);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// What comparisons of both stores found, with the projects of the views.
#[derive(Debug, Default)]
pub(crate) struct Skews(Mutex<Vec<(String, Skew)>>);

impl Skews {
    pub(super) fn replace(&self, mut all: Vec<(String, Skew)>) {
        all.truncate(MOST);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Reads the numbers when it is asked.
#[derive(Debug)]
pub struct FreshnessCollector(Features);

impl FreshnessCollector {
    #[must_use]
    pub fn new(features: Features) -> Self {
        Self(features)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    project: String,
    view: String,
}

impl Collector for FreshnessCollector {
    #[allow(clippy::cast_precision_loss, reason = "seconds for people")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.ages().0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.0.db().now();
        let labels = |(project, it): &(String, Freshness)| Labels {
            project: project.clone(),
            view: it.view.to_string(),
        };
        let mut ages = encoder.encode_descriptor(
            "falaj_feature_age_seconds",
            "Seconds since the latest event of a view",
            None,
            MetricType::Gauge,
        )?;
        for one in &all {
            if let Some(event) = one.1.newest_event {
                let age = (now.micros() - event.micros()) as f64 / 1e6;
                ConstGauge::new(age).encode(ages.encode_family(&labels(one))?)?;
            }
        }
        let mut stale = encoder.encode_descriptor(
            "falaj_feature_stale",
            "Whether a view is older than its definition allows",
            None,
            MetricType::Gauge,
        )?;
        for one in &all {
            let is = i64::from(one.1.stale_since.is_some());
            ConstGauge::new(is).encode(stale.encode_family(&labels(one))?)?;
        }
        self.skews(&mut encoder)
    }
}

impl FreshnessCollector {
    #[allow(clippy::cast_precision_loss, reason = "a share, and seconds for people")]
    fn skews(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Number = fn(&Skew) -> f64;
        let table: [(&str, &str, Number); 3] = [
            (
                "falaj_feature_skew_share",
                "The share of values that differed between both stores of a view",
                |skew| skew.mismatches as f64 / (skew.compared.max(1)) as f64,
            ),
            ("falaj_feature_skewed", "Whether more values differed than the view allows", |skew| {
                f64::from(u8::from(skew.above))
            }),
            (
                "falaj_feature_checked_timestamp_seconds",
                "When both stores of a view were compared, in seconds since 1970",
                |skew| skew.at.micros() as f64 / 1e6,
            ),
        ];
        let all = self.0.skews().0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, help, number) in table {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (project, skew) in &all {
                let labels = Labels { project: project.clone(), view: skew.view.to_string() };
                ConstGauge::new(number(skew)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
