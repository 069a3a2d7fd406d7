//! Logged models over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused, required, required_text};
use falaj_mlflow::filter::logged_model_order;
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::model::{LoggedModel, ModelStatus};
use super::search::{ModelOrder, ModelSearch};
use super::service::NewLoggedModel;
use crate::experiment::http::Nothing;
use crate::run::wire::{KeyValue, MetricValue};
use crate::{RUN_DELETE, RUN_READ, RUN_UNTAG, RUN_WRITE, Tracking};

/// The most results in a page, and how many there are unless asked otherwise.
const MOST: i64 = 1000;
const USUAL: i64 = 100;

pub(crate) fn routes(tracking: Arc<Tracking>, places: Places) -> Vec<Endpoint> {
    let one = "/api/2.0/mlflow/logged-models/{model_id}";
    let tags = "/api/2.0/mlflow/logged-models/{model_id}/tags";
    let tag = "/api/2.0/mlflow/logged-models/{model_id}/tags/{tag_key}";
    let params = "/api/2.0/mlflow/logged-models/{model_id}/params";
    Api::new(tracking, places)
        .post("/api/2.0/mlflow/logged-models", &RUN_WRITE, "Create a logged model", create)
        .post("/api/2.0/mlflow/logged-models/search", &RUN_READ, "Search logged models", search)
        .at(Method::GET, one, &RUN_READ, "See a logged model", get)
        .at(Method::PATCH, one, &RUN_WRITE, "Say that a logged model is complete", finalize)
        .at(Method::DELETE, one, &RUN_DELETE, "Delete a logged model, recoverably", delete)
        .at(Method::POST, params, &RUN_WRITE, "Add parameters to a logged model", log_params)
        .at(Method::PATCH, tags, &RUN_WRITE, "Set tags of a logged model", set_tags)
        .at(Method::DELETE, tag, &RUN_UNTAG, "Delete a tag of a logged model", delete_tag)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    name: Option<String>,
    #[serde(alias = "modelType")]
    model_type: Option<String>,
    #[serde(alias = "sourceRunId")]
    source_run_id: Option<String>,
    params: Vec<KeyValue>,
    tags: Vec<KeyValue>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Info {
    model_id: String,
    experiment_id: String,
    name: String,
    creation_timestamp_ms: i64,
    last_updated_timestamp_ms: i64,
    artifact_uri: String,
    status: &'static str,
    model_type: String,
    source_run_id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValue>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Data {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    params: Vec<KeyValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricValue>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ModelShape {
    info: Info,
    data: Data,
}

impl From<LoggedModel> for ModelShape {
    fn from(model: LoggedModel) -> Self {
        let id = model.id.to_string();
        let metrics = model.metrics.into_iter().map(|metric| MetricValue {
            key: metric.key,
            value: metric.value,
            timestamp: metric.timestamp,
            step: metric.step,
            run_id: Some(metric.run.to_string()),
            model_id: Some(id.clone()),
            dataset_name: metric.dataset_name,
            dataset_digest: metric.dataset_digest,
        });
        Self {
            data: Data {
                params: model.params.into_iter().map(KeyValue::from).collect(),
                metrics: metrics.collect(),
            },
            info: Info {
                model_id: id,
                experiment_id: model.experiment_id.to_string(),
                name: model.name,
                creation_timestamp_ms: model.created_at,
                last_updated_timestamp_ms: model.updated_at,
                artifact_uri: model.artifact_uri,
                status: model.status.as_str(),
                model_type: model.model_type,
                source_run_id: model.source_run.unwrap_or_default(),
                tags: model.tags.into_iter().map(KeyValue::from).collect(),
            },
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    model: ModelShape,
}

async fn create(t: Arc<Tracking>, call: Call, body: Create) -> Result<Shown> {
    let new = NewLoggedModel {
        experiment: required_text("experiment_id", body.experiment_id)?.parse()?,
        name: body.name,
        model_type: body.model_type.unwrap_or_default(),
        source_run: body.source_run_id.filter(|run| !run.is_empty()),
        params: pairs("params", body.params)?,
        tags: pairs("tags", body.tags)?,
    };
    Ok(Shown { model: t.create_logged_model(&call, new).await?.into() })
}

fn pairs(list: &str, pairs: Vec<KeyValue>) -> Result<Vec<(String, String)>> {
    pairs.into_iter().enumerate().map(|(at, pair)| pair.pair(list, at)).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ById {
    model_id: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Get {
    #[serde(deserialize_with = "read::flag")]
    allow_deleted: Option<bool>,
}

async fn get(t: Arc<Tracking>, call: Call, path: ById, query: Get) -> Result<Shown> {
    let also_deleted = query.allow_deleted.unwrap_or_default();
    Ok(Shown { model: t.logged_model(&call, &path.model_id, also_deleted).await?.into() })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Finalize {
    status: Option<serde_json::Value>,
}

async fn finalize(t: Arc<Tracking>, call: Call, path: ById, body: Finalize) -> Result<Shown> {
    let status = ModelStatus::parse(&required("status", body.status)?)?;
    Ok(Shown { model: t.finalize_logged_model(&call, &path.model_id, status).await?.into() })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Empty {}

async fn delete(t: Arc<Tracking>, call: Call, path: ById, _: Empty) -> Result<Nothing> {
    t.delete_logged_model(&call, &path.model_id).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Params {
    params: Vec<KeyValue>,
}

async fn log_params(t: Arc<Tracking>, call: Call, path: ById, body: Params) -> Result<Nothing> {
    let params = pairs("params", body.params)?;
    t.log_model_params(&call, &path.model_id, params).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tags {
    tags: Vec<KeyValue>,
}

async fn set_tags(t: Arc<Tracking>, call: Call, path: ById, body: Tags) -> Result<Nothing> {
    let tags = pairs("tags", body.tags)?;
    t.tag_logged_model(&call, &path.model_id, tags).await.map(|_| Nothing {})
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ByTag {
    model_id: String,
    tag_key: String,
}

async fn delete_tag(t: Arc<Tracking>, call: Call, path: ByTag, _: Empty) -> Result<Nothing> {
    t.untag_logged_model(&call, &path.model_id, path.tag_key).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Search {
    #[serde(alias = "experimentIds", deserialize_with = "read::list")]
    experiment_ids: Vec<String>,
    filter: Option<String>,
    datasets: Vec<DatasetIn>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "orderBy")]
    order_by: Vec<OrderIn>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct DatasetIn {
    #[serde(alias = "datasetName")]
    dataset_name: Option<String>,
    #[serde(alias = "datasetDigest")]
    dataset_digest: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct OrderIn {
    #[serde(alias = "fieldName")]
    field_name: Option<String>,
    #[serde(deserialize_with = "read::flag")]
    ascending: Option<bool>,
    #[serde(alias = "datasetName")]
    dataset_name: Option<String>,
    #[serde(alias = "datasetDigest")]
    dataset_digest: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<ModelShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn search(t: Arc<Tracking>, call: Call, body: Search) -> Result<Found> {
    if body.experiment_ids.is_empty() {
        return Err(falaj_mlflow::error::missing("experiment_ids"));
    }
    let limit = match body.max_results.filter(|limit| *limit != 0).unwrap_or(USUAL) {
        limit @ 1..=MOST => usize::try_from(limit).map_err(falaj_base::Error::internal)?,
        limit => {
            let why = format!("it must be between 1 and {MOST}");
            return Err(invalid("max_results", &json!(limit), &why));
        }
    };
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let datasets = body.datasets.into_iter().map(|dataset| {
        let name = given(dataset.dataset_name)
            .ok_or_else(|| refused("`dataset_name` in the `datasets` clause must be specified."))?;
        Ok((name, given(dataset.dataset_digest)))
    });
    let order = body.order_by.into_iter().map(|clause| {
        let field = required_text("order_by.field_name", clause.field_name)?;
        Ok(ModelOrder {
            by: logged_model_order(&field, clause.ascending.unwrap_or(true))?,
            dataset: given(clause.dataset_name).map(|name| (name, given(clause.dataset_digest))),
        })
    });
    let search = ModelSearch {
        experiments: body.experiment_ids,
        filter: given(body.filter),
        datasets: datasets.collect::<Result<_>>()?,
        order: order.collect::<Result<_>>()?,
        limit,
        page_token: body.page_token,
    };
    let (models, next_page_token) = t.search_logged_models(&call, search).await?;
    Ok(Found { models: models.into_iter().map(ModelShape::from).collect(), next_page_token })
}
