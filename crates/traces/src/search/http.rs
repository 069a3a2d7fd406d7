//! Searches over the MLflow protocol.

use std::sync::Arc;

use falaj_base::{Error, Result};
use falaj_mlflow::error::{invalid, missing, refused, required, required_text};
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::TraceSearch;
use super::correlation::Correlation;
use super::metrics::{Aggregation, Condition, Metric, Point, Query, View};
use crate::trace::v2::InfoShape as InfoShapeV2;
use crate::trace::wire::{InfoShape, Location};
use crate::{TRACE_READ, Traces};

/// The most results in a page, and how many there are unless asked otherwise.
const MOST: i64 = 500;
const USUAL: i64 = 100;
/// The same for figures.
const USUAL_POINTS: i64 = 1000;
const MOST_POINTS: i64 = 50_000;
/// The most experiments in one request, and conditions of figures.
const MOST_EXPERIMENTS: usize = 1000;
const MOST_CONDITIONS: usize = 100;

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    Api::new(traces, places)
        .post("/api/3.0/mlflow/traces/search", &TRACE_READ, "Search traces", search)
        .get("/api/2.0/mlflow/traces", &TRACE_READ, "Search traces", search_v2)
        .post(
            "/api/3.0/mlflow/traces/calculate-filter-correlation",
            &TRACE_READ,
            "How often two filters match the same traces",
            correlate,
        )
        .post("/api/3.0/mlflow/traces/metrics", &TRACE_READ, "Figures over traces", metrics)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Search {
    locations: Option<Vec<Location>>,
    filter: Option<String>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy", deserialize_with = "read::list")]
    order_by: Vec<String>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found<T> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    traces: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn search(t: Arc<Traces>, call: Call, body: Search) -> Result<Found<InfoShape>> {
    let locations = required("locations", body.locations)?;
    let experiments: Vec<String> = locations.into_iter().filter_map(Location::experiment).collect();
    check_experiments("locations", experiments.len())?;
    let search = TraceSearch {
        experiments,
        filter: body.filter,
        order: body.order_by,
        limit: limit(body.max_results, USUAL, MOST)?,
        page_token: body.page_token,
    };
    let (found, next_page_token) = t.search_traces(&call, search).await?;
    Ok(Found { traces: found.into_iter().map(InfoShape::from).collect(), next_page_token })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SearchV2 {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    filter: Option<String>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy", deserialize_with = "read::list")]
    order_by: Vec<String>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

async fn search_v2(t: Arc<Traces>, call: Call, query: SearchV2) -> Result<Found<InfoShapeV2>> {
    if query.experiment_ids.is_empty() {
        return Err(missing("experiment_ids"));
    }
    check_experiments("experiment_ids", query.experiment_ids.len())?;
    let search = TraceSearch {
        experiments: query.experiment_ids,
        filter: query.filter,
        order: query.order_by,
        limit: limit(query.max_results, USUAL, MOST)?,
        page_token: query.page_token,
    };
    let (found, next_page_token) = t.search_traces(&call, search).await?;
    let shapes = found.into_iter().map(|(trace, _)| InfoShapeV2::from(trace));
    Ok(Found { traces: shapes.collect(), next_page_token })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Correlate {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    #[serde(alias = "filterString1")]
    filter_string1: Option<String>,
    #[serde(alias = "filterString2")]
    filter_string2: Option<String>,
    #[serde(alias = "baseFilter")]
    base_filter: Option<String>,
}

async fn correlate(t: Arc<Traces>, call: Call, body: Correlate) -> Result<Correlation> {
    if body.experiment_ids.is_empty() {
        return Err(missing("experiment_ids"));
    }
    check_experiments("experiment_ids", body.experiment_ids.len())?;
    let filters = [
        required_text("filter_string1", body.filter_string1)?,
        required_text("filter_string2", body.filter_string2)?,
    ];
    t.correlate(&call, &body.experiment_ids, filters, body.base_filter).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Metrics {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    #[serde(alias = "viewType")]
    view_type: Option<Value>,
    #[serde(alias = "metricName")]
    metric_name: Option<String>,
    aggregations: Vec<AggregationIn>,
    #[serde(deserialize_with = "read::list")]
    dimensions: Vec<String>,
    #[serde(deserialize_with = "read::list")]
    filters: Vec<String>,
    #[serde(alias = "timeIntervalSeconds", deserialize_with = "read::int")]
    time_interval_seconds: Option<i64>,
    #[serde(alias = "startTimeMs", deserialize_with = "read::int")]
    start_time_ms: Option<i64>,
    #[serde(alias = "endTimeMs", deserialize_with = "read::int")]
    end_time_ms: Option<i64>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct AggregationIn {
    #[serde(alias = "aggregationType")]
    aggregation_type: Option<Value>,
    #[serde(alias = "percentileValue", deserialize_with = "read::double")]
    percentile_value: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Points {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    data_points: Vec<Point>,
}

async fn metrics(t: Arc<Traces>, call: Call, body: Metrics) -> Result<Points> {
    if body.experiment_ids.is_empty() {
        return Err(missing("experiment_ids"));
    }
    check_experiments("experiment_ids", body.experiment_ids.len())?;
    if body.aggregations.is_empty() {
        return Err(missing("aggregations"));
    }
    if body.filters.len() + body.dimensions.len() + body.aggregations.len() > MOST_CONDITIONS {
        return Err(refused(format!(
            "more than {MOST_CONDITIONS} filters, dimensions and aggregations"
        )));
    }
    let view = View::parse(&required("view_type", body.view_type)?)?;
    let metric = Metric::find(view, &required_text("metric_name", body.metric_name)?)?;
    let interval = match body.time_interval_seconds.unwrap_or(0) {
        0 => None,
        seconds => {
            Some(seconds.checked_mul(1000).filter(|interval| *interval > 0).ok_or_else(|| {
                invalid("time_interval_seconds", &json!(seconds), "it must be positive")
            })?)
        }
    };
    let aggregation = |given: AggregationIn| {
        let kind = required("aggregations.aggregation_type", given.aggregation_type)?;
        Aggregation::parse(&kind, given.percentile_value)
    };
    let query = Query {
        experiments: body.experiment_ids,
        metric,
        aggregations: body.aggregations.into_iter().map(aggregation).collect::<Result<_>>()?,
        dimensions: body
            .dimensions
            .iter()
            .map(|name| metric.dimension(name))
            .collect::<Result<_>>()?,
        conditions: body
            .filters
            .iter()
            .map(|text| Condition::parse(text))
            .collect::<Result<_>>()?,
        interval,
        from: body.start_time_ms,
        to: body.end_time_ms,
        limit: limit(body.max_results, USUAL_POINTS, MOST_POINTS)?,
    };
    Ok(Points { data_points: t.trace_metrics(&call, query).await? })
}

fn check_experiments(parameter: &str, count: usize) -> Result<()> {
    if count <= MOST_EXPERIMENTS {
        return Ok(());
    }
    let why = format!("at most {MOST_EXPERIMENTS} experiments in one request");
    Err(invalid(parameter, &json!(count), &why))
}

fn limit(asked: Option<i64>, usual: i64, most: i64) -> Result<usize> {
    let asked = asked.unwrap_or(usual);
    if (1..=most).contains(&asked) {
        return usize::try_from(asked).map_err(Error::internal);
    }
    Err(invalid("max_results", &json!(asked), &format!("it must be between 1 and {most}")))
}
