//! Figures over many traces: how many, how long, how many tokens, by name or by the hour.

mod filter;
mod group;
mod kind;
mod sample;

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use serde_json::json;

pub(crate) use filter::Condition;
pub(crate) use group::{Aggregation, Groups, Point};
pub(crate) use kind::{Metric, View};

use super::budget::Budget;
use super::scan::Scan;
use crate::assessment::store as assessments;
use crate::span::store as spans;
use crate::{TRACE_READ, Traces};

/// What is asked for, checked.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) experiments: Vec<String>,
    pub(crate) metric: Metric,
    pub(crate) aggregations: Vec<Aggregation>,
    pub(crate) dimensions: Vec<&'static str>,
    pub(crate) conditions: Vec<Condition>,
    /// In milliseconds.
    pub(crate) interval: Option<i64>,
    pub(crate) from: Option<i64>,
    pub(crate) to: Option<i64>,
    pub(crate) limit: usize,
}

impl Query {
    /// The dimensions and aggregations must be ones that the metric has.
    pub(crate) fn check(&self) -> Result<()> {
        for aggregation in &self.aggregations {
            if !self.metric.takes(aggregation) {
                return Err(refused(format!(
                    "Found invalid aggregation_type(s): ['{}']. Supported aggregation types: {:?}",
                    aggregation.word(),
                    self.metric.aggregations()
                ))
                .at("aggregations"));
            }
        }
        if self.interval.is_some() && (self.from.is_none() || self.to.is_none()) {
            return Err(refused(
                "start_time_ms and end_time_ms are required if time_interval_seconds is set",
            ));
        }
        if self.limit == 0 {
            return Err(invalid("max_results", &json!(0), "it must be positive"));
        }
        Ok(())
    }
}

impl Traces {
    pub(crate) async fn trace_metrics(&self, call: &Call, query: Query) -> Result<Vec<Point>> {
        query.check()?;
        let experiments = self.experiments(call, &query.experiments, &TRACE_READ).await?;
        let config = self.config();
        let mut budget = Budget::new(config, query.metric.view() == View::Spans);
        let (samples, room) = (budget.traces(), config.max_search_reply.as_usize());
        self.db()
            .read(move |tx| {
                let times = (query.from.unwrap_or(i64::MIN), query.to.unwrap_or(i64::MAX));
                let mut scan = Scan::new(&experiments, times, None);
                let mut groups = Groups::new(&query, samples, room);
                while let Some((trace, weight)) = scan.next(tx)? {
                    budget.whole(weight)?;
                    if !query.conditions.iter().all(|condition| condition.holds_of_trace(&trace)) {
                        continue;
                    }
                    match query.metric.view() {
                        View::Traces => groups.add(sample::of_trace(&query, &trace))?,
                        View::Spans => {
                            let bytes = spans::each_of_trace(tx, trace.no, |span| {
                                groups.add(sample::of_span(&query, &trace, &span))
                            })?;
                            budget.read(bytes);
                        }
                        View::Assessments => {
                            let (said, bytes) = assessments::weighed(tx, trace.no)?;
                            for said in said {
                                groups.add(sample::of_assessment(&query, &trace, &said))?;
                            }
                            budget.read(bytes);
                        }
                    }
                }
                Ok(groups.points())
            })
            .await
    }
}
