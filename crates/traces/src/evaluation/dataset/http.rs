//! Evaluation datasets over the MLflow protocol. Tags and records travel as JSON inside a text.

use std::collections::BTreeMap;
use std::sync::Arc;

use falaj_base::{Error, Result};
use falaj_mlflow::error::{invalid, required_text};
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_tracking::ExperimentId;
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::dataset::tags;
use super::search::DatasetSearch;
use super::service::Placed;
use crate::trace::wire::Nothing;
use crate::{EVALUATION_DELETE, EVALUATION_READ, EVALUATION_WRITE, Traces};

const CREATE: &str = "/api/3.0/mlflow/datasets/create";
const SEARCH: &str = "/api/3.0/mlflow/datasets/search";
const ONE: &str = "/api/3.0/mlflow/datasets/{dataset_id}";
const TAGS: &str = "/api/3.0/mlflow/datasets/{dataset_id}/tags";
const TAG: &str = "/api/3.0/mlflow/datasets/{dataset_id}/tags/{key}";
const RECORDS: &str = "/api/3.0/mlflow/datasets/{dataset_id}/records";
const PLACES: &str = "/api/3.0/mlflow/datasets/{dataset_id}/experiment-ids";
const ADD: &str = "/api/3.0/mlflow/datasets/{dataset_id}/add-experiments";
const REMOVE: &str = "/api/3.0/mlflow/datasets/{dataset_id}/remove-experiments";

/// How many datasets, or records, one page holds unless the caller says otherwise.
const PAGE: i64 = 1000;
/// The most that one page can be asked to hold, as in MLflow.
const MAX_PAGE: i64 = 50_000;

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    let (see, write, delete) = (&EVALUATION_READ, &EVALUATION_WRITE, &EVALUATION_DELETE);
    let found = "Search evaluation datasets";
    Api::new(traces, places)
        .post(CREATE, write, "Create an evaluation dataset", create)
        .post(SEARCH, see, found, search)
        .get(SEARCH, see, found, search)
        .at(Method::GET, ONE, see, "See an evaluation dataset", get)
        .at(Method::DELETE, ONE, delete, "Delete an evaluation dataset", remove)
        .at(Method::PATCH, TAGS, write, "Tag an evaluation dataset", set_tags)
        .at(Method::DELETE, TAG, write, "Delete a tag of an evaluation dataset", delete_tag)
        .at(Method::POST, RECORDS, write, "Add or complete records", upsert)
        .at(Method::GET, RECORDS, see, "See records", records)
        .at(Method::DELETE, RECORDS, delete, "Delete records", delete_records)
        .at(Method::GET, PLACES, see, "See where a dataset belongs", experiment_ids)
        .at(Method::POST, ADD, write, "Add a dataset to experiments", add)
        .at(Method::POST, REMOVE, write, "Take a dataset out of experiments", take_out)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ById {
    dataset_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfTag {
    dataset_id: String,
    key: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Empty {}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    name: Option<String>,
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    /// A JSON object.
    tags: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    dataset: DatasetShape,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DatasetShape {
    dataset_id: String,
    name: String,
    tags: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    digest: String,
    created_time: i64,
    last_update_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_updated_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    experiment_ids: Vec<String>,
}

fn shape((dataset, experiments): Placed) -> Result<DatasetShape> {
    let profile = json!({ "num_records": dataset.records }).to_string();
    Ok(DatasetShape {
        tags: text(&dataset.tags)?,
        schema: dataset.shape.as_ref().map(text).transpose()?,
        profile: (dataset.records > 0).then_some(profile),
        digest: dataset.digest(),
        dataset_id: dataset.id.to_string(),
        name: dataset.name,
        created_time: dataset.created_at,
        last_update_time: dataset.updated_at,
        created_by: dataset.created_by,
        last_updated_by: dataset.updated_by,
        experiment_ids: names(experiments),
    })
}

fn text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(Error::internal)
}

fn names(experiments: Vec<ExperimentId>) -> Vec<String> {
    experiments.into_iter().map(|id| id.to_string()).collect()
}

fn shown(placed: Placed) -> Result<Shown> {
    Ok(Shown { dataset: shape(placed)? })
}

async fn create(t: Arc<Traces>, call: Call, body: Create) -> Result<Shown> {
    let name = required_text("name", body.name)?;
    let tags = match body.tags.filter(|tags| !tags.is_empty()) {
        Some(text) => tags(&text, t.config().max_tags)?,
        None => BTreeMap::new(),
    };
    check_experiments(&body.experiment_ids)?;
    t.create_dataset(&call, name, tags, &body.experiment_ids).await.and_then(shown)
}

async fn get(t: Arc<Traces>, call: Call, path: ById, _: Empty) -> Result<Shown> {
    t.dataset(&call, &path.dataset_id).await.and_then(shown)
}

async fn remove(t: Arc<Traces>, call: Call, path: ById, _: Empty) -> Result<Nothing> {
    t.delete_dataset(&call, &path.dataset_id).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Search {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    #[serde(alias = "filterString")]
    filter_string: Option<String>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy", deserialize_with = "read::list")]
    order_by: Vec<String>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    datasets: Vec<DatasetShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn search(t: Arc<Traces>, call: Call, body: Search) -> Result<Found> {
    check_experiments(&body.experiment_ids)?;
    let search = DatasetSearch {
        experiments: body.experiment_ids,
        filter: body.filter_string,
        order_by: body.order_by,
        limit: limit(body.max_results)?,
        page_token: body.page_token,
    };
    let (found, next_page_token) = t.search_datasets(&call, search).await?;
    Ok(Found { datasets: found.into_iter().map(shape).collect::<Result<_>>()?, next_page_token })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tags {
    /// A JSON object.
    tags: Option<String>,
}

async fn set_tags(t: Arc<Traces>, call: Call, path: ById, body: Tags) -> Result<Nothing> {
    let tags = tags(&required_text("tags", body.tags)?, t.config().max_tags)?;
    t.tag_dataset(&call, &path.dataset_id, tags).await.map(|()| Nothing {})
}

async fn delete_tag(t: Arc<Traces>, call: Call, path: OfTag, _: Empty) -> Result<Nothing> {
    t.untag_dataset(&call, &path.dataset_id, path.key).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Upsert {
    /// A JSON list of records.
    records: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Upserted {
    inserted_count: usize,
    updated_count: usize,
}

async fn upsert(t: Arc<Traces>, call: Call, path: ById, body: Upsert) -> Result<Upserted> {
    let records = required_text("records", body.records)?;
    let (inserted_count, updated_count) =
        t.upsert_records(&call, &path.dataset_id, &records).await?;
    Ok(Upserted { inserted_count, updated_count })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Page {
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Records {
    records: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn records(t: Arc<Traces>, call: Call, path: ById, query: Page) -> Result<Records> {
    let limit = limit(query.max_results)?;
    let (records, next_page_token) =
        t.records(&call, &path.dataset_id, limit, query.page_token.as_deref()).await?;
    Ok(Records { records, next_page_token })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct DeleteRecords {
    #[serde(alias = "datasetRecordIds", deserialize_with = "read::list")]
    dataset_record_ids: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Deleted {
    deleted_count: usize,
}

async fn delete_records(
    t: Arc<Traces>,
    call: Call,
    path: ById,
    body: DeleteRecords,
) -> Result<Deleted> {
    let ids = body.dataset_record_ids;
    Ok(Deleted { deleted_count: t.delete_records(&call, &path.dataset_id, ids).await? })
}

#[derive(Debug, Serialize, JsonSchema)]
struct ExperimentIds {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    experiment_ids: Vec<String>,
}

async fn experiment_ids(t: Arc<Traces>, call: Call, path: ById, _: Empty) -> Result<ExperimentIds> {
    let (_, experiments) = t.dataset(&call, &path.dataset_id).await?;
    Ok(ExperimentIds { experiment_ids: names(experiments) })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Experiments {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
}

async fn add(t: Arc<Traces>, call: Call, path: ById, body: Experiments) -> Result<Shown> {
    check_experiments(&body.experiment_ids)?;
    t.add_to_experiments(&call, &path.dataset_id, &body.experiment_ids).await.and_then(shown)
}

async fn take_out(t: Arc<Traces>, call: Call, path: ById, body: Experiments) -> Result<Shown> {
    check_experiments(&body.experiment_ids)?;
    t.remove_from_experiments(&call, &path.dataset_id, &body.experiment_ids).await.and_then(shown)
}

/// Each is looked up on its own.
const MAX_EXPERIMENTS: usize = 1000;

fn check_experiments(ids: &[String]) -> Result<()> {
    if ids.len() <= MAX_EXPERIMENTS {
        return Ok(());
    }
    let why = format!("at most {MAX_EXPERIMENTS} experiments in one request");
    Err(invalid("experiment_ids", &json!(ids.len()), &why))
}

/// Nothing and nought are MLflow's way to leave it to the server.
fn limit(asked: Option<i64>) -> Result<usize> {
    let asked = asked.filter(|asked| *asked != 0).unwrap_or(PAGE);
    let fits = usize::try_from(asked).ok().filter(|_| (1..=MAX_PAGE).contains(&asked));
    fits.ok_or_else(|| {
        let why = format!("a page holds 1 to {MAX_PAGE}");
        invalid("max_results", &json!(asked), &why)
    })
}
