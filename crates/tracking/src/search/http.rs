//! Searches over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused};
use falaj_mlflow::{Api, Call, Places, asked, wire as read};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::experiments::ExperimentSearch;
use super::service::RunSearch;
use crate::experiment::ViewType;
use crate::experiment::http::ExperimentInfo;
use crate::run::Projection;
use crate::run::wire::RunShape;
use crate::{EXPERIMENT_READ, RUN_READ, Tracking};

/// The most results in one page, and how many there are unless asked otherwise.
const MOST: i64 = 50_000;
const USUAL: usize = 1000;

pub(crate) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    let experiments = "/api/2.0/mlflow/experiments/search";
    Api::new(tracking, places)
        .post("/api/2.0/mlflow/runs/search", &RUN_READ, "Search runs", runs)
        .post(experiments, &EXPERIMENT_READ, "Search experiments", search_experiments)
        .get(experiments, &EXPERIMENT_READ, "Search experiments", search_experiments)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SearchRuns {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    filter: Option<String>,
    #[serde(alias = "runViewType")]
    run_view_type: Option<ViewType>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy", deserialize_with = "read::list")]
    order_by: Vec<String>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
    /// Only these parts of the runs: `info`, `metrics.loss`, `params`, `tags.x`, `inputs`, ….
    /// Everything if absent. An addition to MLflow's protocol.
    #[serde(deserialize_with = "read::list")]
    columns: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FoundRuns {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<RunShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

/// The same question in another envelope.
pub(crate) async fn ask(t: Arc<Tracking>, call: &Call, input: &[u8]) -> Result<serde_json::Value> {
    asked(t, call, input, runs).await
}

async fn runs(t: Arc<Tracking>, call: Call, body: SearchRuns) -> Result<FoundRuns> {
    let search = RunSearch {
        experiments: body.experiment_ids,
        filter: body.filter,
        order_by: body.order_by,
        view: body.run_view_type.unwrap_or_default(),
        limit: page_size(body.max_results)?,
        page_token: body.page_token,
        projection: Projection::parse(&body.columns)?,
    };
    let (runs, next_page_token) = t.search_runs(&call, search).await?;
    Ok(FoundRuns { runs: runs.into_iter().map(RunShape::from).collect(), next_page_token })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SearchExperiments {
    filter: Option<String>,
    #[serde(alias = "viewType")]
    view_type: Option<ViewType>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy", deserialize_with = "read::list")]
    order_by: Vec<String>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FoundExperiments {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    experiments: Vec<ExperimentInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn search_experiments(
    t: Arc<Tracking>,
    call: Call,
    body: SearchExperiments,
) -> Result<FoundExperiments> {
    let search = ExperimentSearch {
        filter: body.filter,
        order_by: body.order_by,
        view: body.view_type.unwrap_or_default(),
        limit: page_size(body.max_results)?,
        page_token: body.page_token,
    };
    let (found, next_page_token) = t.search_experiments(&call, search).await?;
    Ok(FoundExperiments {
        experiments: found.into_iter().map(ExperimentInfo::from).collect(),
        next_page_token,
    })
}

/// How many results a page has.
fn page_size(asked: Option<i64>) -> Result<usize> {
    match asked {
        None => Ok(USUAL),
        Some(size @ 1..=MOST) => usize::try_from(size).map_err(falaj_base::Error::internal),
        Some(size @ ..=0) => Err(invalid("max_results", &json!(size), "it must be at least 1")),
        Some(size) => Err(refused(format!(
            "Invalid value {size} for parameter 'max_results' supplied: It must be at most {MOST}, \
             but got value {size}"
        ))
        .at("max_results")),
    }
}
