//! Runs in our own words.

use std::collections::BTreeMap;
use std::sync::Arc;

use falaj_base::{Ctx, Error, Result, Timestamp};
use falaj_web::{Endpoint, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::experiments::{View3, moment};
use super::{Native, ProjectPath, RUN, RUN_METRICS, RUN_RESTORE, RUNS_SEARCH, RunPath};
use crate::experiment::Stage;
use crate::metric::{Point, Sampling, Steps};
use crate::run::{Projection, Run};
use crate::search::RunSearch;
use crate::{RUN_DELETE, RUN_READ};

/// The most runs in one page, and how many there are unless asked otherwise.
const MOST: usize = 1000;
const USUAL: usize = 100;
/// The most points of a history in one reply.
const MOST_POINTS: usize = 2500;

pub(super) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    Routes::new(native.clone())
        .post(RUNS_SEARCH, &RUN_READ, "Search runs", search)
        .get(RUN, &RUN_READ, "Show a run", show)
        .delete(RUN, &RUN_DELETE, "Delete a run, recoverably", delete)
        .post(RUN_RESTORE, &RUN_DELETE, "Restore a deleted run", restore)
        .get(
            RUN_METRICS,
            &RUN_READ,
            "Read a run's latest metrics, or one metric's history",
            metrics,
        )
        .into()
}

/// A run as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunView {
    run_id: String,
    run_name: String,
    experiment_id: String,
    user_id: String,
    status: &'static str,
    lifecycle_stage: Stage,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    artifact_uri: String,
    /// The latest value of each metric.
    metrics: BTreeMap<String, MetricView>,
    params: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

/// A point of a metric. A value that is no number in JSON is told as the text `NaN`, `Infinity` or
/// `-Infinity`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MetricView {
    #[serde(serialize_with = "falaj_mlflow::wire::print_double")]
    pub(crate) value: f64,
    pub(crate) step: i64,
    /// Milliseconds since 1970.
    pub(crate) timestamp: i64,
}

impl From<Point> for MetricView {
    fn from(point: Point) -> Self {
        Self { value: point.value(), step: point.step(), timestamp: point.timestamp() }
    }
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        let metrics = run.data.metrics.into_iter().map(|(key, point)| (key, point.into()));
        Self {
            run_id: run.info.id.to_string(),
            run_name: run.info.name,
            experiment_id: run.info.experiment_id.to_string(),
            user_id: run.info.user_id,
            status: run.info.status.as_str(),
            lifecycle_stage: run.info.stage,
            started_at: moment(run.info.start_time),
            ended_at: run.info.end_time.map(moment),
            artifact_uri: run.info.artifact_uri,
            metrics: metrics.collect(),
            params: run.data.params.into_iter().collect(),
            tags: run.data.tags.into_iter().collect(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Search {
    /// Which experiments; all that the caller may read if there are none.
    #[schemars(length(max = 1000))]
    experiment_ids: Vec<String>,
    /// `metrics.loss < 0.1 and (params.lr = '0.1' or not tags.team = 'a')`.
    filter: Option<String>,
    /// `metrics.loss ASC`, `start_time DESC`, ….
    order_by: Vec<String>,
    /// `active` (the default), `deleted` or `all`.
    view: View3,
    /// Only these parts of the runs: `metrics.loss`, `params`, `tags.x`, ….
    columns: Vec<String>,
    /// How many runs at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<usize>,
    /// Where the last page ended.
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    items: Vec<RunView>,
    /// Pass as `page_token` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn search(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, (), Search>,
) -> Result<Ok200<Found>> {
    let body = input.body;
    let limit = body.page_size.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(Error::invalid("page_size", limit, format!("1 to {MOST}")));
    }
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let experiments = if body.experiment_ids.is_empty() {
        let all = n.tracking().visible_experiments(&call).await?;
        all.into_iter().map(|experiment| experiment.id.to_string()).collect()
    } else {
        body.experiment_ids
    };
    let search = RunSearch {
        experiments,
        filter: body.filter,
        order_by: body.order_by,
        view: body.view.into(),
        limit,
        page_token: body.page_token,
        projection: Projection::parse(&body.columns)?,
    };
    let (runs, next_page_token) = n.tracking().search_runs(&call, search).await?;
    let items = runs.into_iter().map(RunView::from).collect();
    Ok(Ok200(Found { items, next_page_token }))
}

async fn show(n: Arc<Native>, ctx: Ctx, input: Input<RunPath>) -> Result<Ok200<RunView>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().run(&call, &input.path.run).await.map(|run| Ok200(run.into()))
}

async fn delete(n: Arc<Native>, ctx: Ctx, input: Input<RunPath>) -> Result<NoContent> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().delete_run(&call, &input.path.run).await.map(|()| NoContent)
}

async fn restore(n: Arc<Native>, ctx: Ctx, input: Input<RunPath>) -> Result<NoContent> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().restore_run(&call, &input.path.run).await.map(|()| NoContent)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MetricsQuery {
    /// The metric whose history is wanted; the latest of every metric if absent.
    #[schemars(length(max = 250))]
    key: Option<String>,
    /// The first and the last step of the history.
    first_step: Option<i64>,
    last_step: Option<i64>,
    /// How many points at most, 1 to 2500, which is the default; a longer history is sampled.
    #[schemars(range(min = 1, max = 2500))]
    max_points: Option<usize>,
    /// `spikes` (the default) keeps the lowest and highest point of every stretch, `even` does not.
    sampling: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Metrics {
    /// The latest point of each metric, or the points of the one that was asked for.
    items: Vec<KeyedMetric>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct KeyedMetric {
    key: String,
    #[serde(flatten)]
    point: MetricView,
}

async fn metrics(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<RunPath, MetricsQuery>,
) -> Result<Ok200<Metrics>> {
    let asked = input.query;
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let keyed = |key: &str, point: Point| KeyedMetric { key: key.to_owned(), point: point.into() };
    let Some(key) = asked.key else {
        let run = n.tracking().run(&call, &input.path.run).await?;
        let latest = run.data.metrics.into_iter().map(|(key, point)| keyed(&key, point));
        return Ok(Ok200(Metrics { items: latest.collect() }));
    };
    let max = asked.max_points.unwrap_or(MOST_POINTS);
    if !(1..=MOST_POINTS).contains(&max) {
        return Err(Error::invalid("max_points", max, format!("1 to {MOST_POINTS}")));
    }
    let sampling = asked.sampling.map_or(Ok(Sampling::Spikes), |text| text.parse())?;
    let steps = Steps {
        first: asked.first_step.unwrap_or(Steps::ALL.first),
        last: asked.last_step.unwrap_or(Steps::ALL.last),
    };
    let runs = [input.path.run];
    let found = n.tracking().sampled_histories(&call, &runs, &key, steps, (max, sampling)).await?;
    let points = found.into_iter().flat_map(|(_, points)| points);
    Ok(Ok200(Metrics { items: points.map(|point| keyed(&key, point)).collect() }))
}
