//! Putting samples into groups, and each group into a few numbers.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, SecondsFormat};
use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Query;
use super::sample::Sample;
use crate::search::budget::too_many;

/// What a group, or a name in it, costs beside its texts.
const GROUP: usize = 64;

/// What a group comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aggregation {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    Percentile(f64),
}

impl Aggregation {
    const NAMES: [&'static str; 6] = ["COUNT", "SUM", "AVG", "PERCENTILE", "MIN", "MAX"];

    /// By its name, or its number.
    pub(crate) fn parse(kind: &Value, percentile: Option<f64>) -> Result<Self> {
        let text = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
        let mut numbered = (1..).zip(Self::NAMES);
        let found = numbered.find(|(number, name)| *name == text || number.to_string() == text);
        Ok(match found.map(|(_, name)| name) {
            Some("COUNT") => Self::Count,
            Some("SUM") => Self::Sum,
            Some("AVG") => Self::Avg,
            Some("MIN") => Self::Min,
            Some("MAX") => Self::Max,
            Some(_) => {
                let percentile = percentile.unwrap_or(-1.0);
                if !(0.0..=100.0).contains(&percentile) {
                    let why = "a percentile is between 0 and 100";
                    return Err(invalid("percentile_value", &json!(percentile), why));
                }
                Self::Percentile(percentile)
            }
            None => {
                let why = format!("allowed: {}", Self::NAMES.join(", "));
                return Err(invalid("aggregation_type", &json!(text), &why));
            }
        })
    }

    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Count => "COUNT",
            Self::Sum => "SUM",
            Self::Avg => "AVG",
            Self::Min => "MIN",
            Self::Max => "MAX",
            Self::Percentile(_) => "PERCENTILE",
        }
    }

    /// The name of its value in a reply: `P99.0` for a percentile.
    fn label(self) -> String {
        match self {
            Self::Percentile(percentile) => format!("P{percentile:?}"),
            other => other.word().to_owned(),
        }
    }

    /// `sorted` has at least one value.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list that fits into memory"
    )]
    fn of(self, sorted: &[f64]) -> f64 {
        let sum = || sorted.iter().sum::<f64>();
        let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
        match self {
            Self::Count => sorted.len() as f64,
            Self::Sum => sum(),
            Self::Avg => sum() / sorted.len() as f64,
            Self::Min => at(0),
            Self::Max => at(sorted.len() - 1),
            Self::Percentile(percentile) => {
                let place = percentile / 100.0 * (sorted.len() - 1) as f64;
                let (low, part) = (place.floor() as usize, place.fract());
                let high = (low + 1).min(sorted.len() - 1);
                at(low) * (1.0 - part) + at(high) * part
            }
        }
    }
}

/// One group in a reply.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Point {
    metric_name: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    dimensions: BTreeMap<&'static str, String>,
    values: BTreeMap<String, f64>,
}

/// The samples so far. How many there may be is limited, since percentiles need them all; and so is
/// how much their names take, which clients choose.
pub(crate) struct Groups<'q> {
    query: &'q Query,
    all: BTreeMap<(i64, Vec<String>), Group>,
    samples: usize,
    room: usize,
}

#[derive(Default)]
struct Group {
    values: Vec<f64>,
    seen: BTreeSet<String>,
}

impl<'q> Groups<'q> {
    /// For so many samples, whose names take so many bytes.
    pub(crate) fn new(query: &'q Query, samples: usize, room: usize) -> Self {
        Self { query, all: BTreeMap::new(), samples, room }
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        let most = || {
            refused(
                "the groups have more names than fit into a reply (`traces.max_search_reply`); \
                 ask for fewer dimensions, or for a shorter time",
            )
            .at("dimensions")
        };
        self.room = self.room.checked_sub(bytes).ok_or_else(most)?;
        Ok(())
    }

    pub(crate) fn add(&mut self, sample: Option<Sample>) -> Result<()> {
        let Some(sample) = sample else { return Ok(()) };
        self.samples = self.samples.checked_sub(1).ok_or_else(too_many)?;
        let interval = self.query.interval;
        let bucket = interval.map_or(0, |interval| sample.at.div_euclid(interval) * interval);
        let key = (bucket, sample.dimensions);
        if !self.all.contains_key(&key) {
            self.take(GROUP + key.1.iter().map(String::len).sum::<usize>())?;
        }
        if let Some(distinct) = &sample.distinct
            && self.all.get(&key).is_none_or(|group| !group.seen.contains(distinct))
        {
            self.take(GROUP + distinct.len())?;
        }
        let group = self.all.entry(key).or_default();
        if sample.distinct.is_none_or(|distinct| group.seen.insert(distinct)) {
            group.values.push(sample.value);
        }
        Ok(())
    }

    /// In the order of time, then of the dimensions.
    pub(crate) fn points(self) -> Vec<Point> {
        let query = self.query;
        let point = |((bucket, dimensions), mut group): ((i64, Vec<String>), Group)| {
            group.values.sort_by(f64::total_cmp);
            let mut named: BTreeMap<&'static str, String> =
                query.dimensions.iter().copied().zip(dimensions).collect();
            if query.interval.is_some() {
                named.insert("time_bucket", moment(bucket));
            }
            let value =
                |aggregation: &Aggregation| (aggregation.label(), aggregation.of(&group.values));
            Point {
                metric_name: query.metric.name(),
                dimensions: named,
                values: query.aggregations.iter().map(value).collect(),
            }
        };
        self.all.into_iter().take(query.limit).map(point).collect()
    }
}

/// A time as Python's `isoformat` writes it.
fn moment(milliseconds: i64) -> String {
    let time = DateTime::from_timestamp_millis(milliseconds).unwrap_or_default();
    let digits = if milliseconds % 1000 == 0 { SecondsFormat::Secs } else { SecondsFormat::Micros };
    time.to_rfc3339_opts(digits, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_values() {
        let values = [1.0, 2.0, 3.0, 10.0];
        for (aggregation, expected) in [
            (Aggregation::Percentile(0.0), 1.0),
            (Aggregation::Percentile(50.0), 2.5),
            (Aggregation::Percentile(100.0), 10.0),
            (Aggregation::Avg, 4.0),
            (Aggregation::Sum, 16.0),
            (Aggregation::Count, 4.0),
            (Aggregation::Min, 1.0),
            (Aggregation::Max, 10.0),
        ] {
            assert!((aggregation.of(&values) - expected).abs() < 1e-9, "{aggregation:?}");
        }
        assert_eq!(Aggregation::Percentile(99.0).label(), "P99.0");
        assert_eq!(moment(978_307_200_000), "2001-01-01T00:00:00+00:00");
    }
}
