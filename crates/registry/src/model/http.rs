//! Models over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::required_text;
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::search::ModelSearch;
use super::service::NewModel;
use crate::wire::{KeyValue, ModelShape, Nothing, ShownModel, limit, pairs};
use crate::{MODEL_DELETE, MODEL_READ, MODEL_RENAME, MODEL_UNTAG, MODEL_WRITE, Registry};

/// The most results in a page, and how many there are unless asked otherwise.
const MOST: i64 = 1000;
const USUAL: i64 = 100;

pub(crate) fn routes(registry: Arc<Registry>, places: Places) -> Vec<Endpoint> {
    let update = "/api/2.0/mlflow/registered-models/update";
    let delete_path = "/api/2.0/mlflow/registered-models/delete";
    let delete_tag = "/api/2.0/mlflow/registered-models/delete-tag";
    Api::new(registry, places)
        .post(
            "/api/2.0/mlflow/registered-models/create",
            &MODEL_WRITE,
            "Create a registered model",
            create,
        )
        .get("/api/2.0/mlflow/registered-models/get", &MODEL_READ, "See a registered model", get)
        .get(
            "/api/2.0/mlflow/registered-models/search",
            &MODEL_READ,
            "Search registered models",
            search,
        )
        .post(
            "/api/2.0/mlflow/registered-models/rename",
            &MODEL_RENAME,
            "Rename a registered model",
            rename,
        )
        .with_body(Method::PATCH, update, &MODEL_WRITE, "Describe a registered model", describe)
        .with_body(Method::DELETE, delete_path, &MODEL_DELETE, "Delete a registered model", delete)
        .post(
            "/api/2.0/mlflow/registered-models/set-tag",
            &MODEL_WRITE,
            "Set a tag of a registered model",
            set_tag,
        )
        .with_body(
            Method::DELETE,
            delete_tag,
            &MODEL_UNTAG,
            "Delete a tag of a registered model",
            untag,
        )
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    name: Option<String>,
    tags: Vec<KeyValue>,
    description: Option<String>,
}

async fn create(r: Arc<Registry>, call: Call, body: Create) -> Result<ShownModel> {
    let new = NewModel {
        name: required_text("name", body.name)?,
        description: body.description.unwrap_or_default(),
        tags: pairs(body.tags)?,
    };
    r.create_model(&call.ctx, &call.place, new).await.map(ShownModel::from)
}

/// One model by its name.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ByName {
    name: Option<String>,
}

async fn get(r: Arc<Registry>, call: Call, query: ByName) -> Result<ShownModel> {
    let name = required_text("name", query.name)?;
    r.model(&call.ctx, &call.place, &name).await.map(ShownModel::from)
}

async fn delete(r: Arc<Registry>, call: Call, body: ByName) -> Result<Nothing> {
    let name = required_text("name", body.name)?;
    r.delete_model(&call.ctx, &call.place, &name).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Rename {
    name: Option<String>,
    #[serde(alias = "newName")]
    new_name: Option<String>,
}

async fn rename(r: Arc<Registry>, call: Call, body: Rename) -> Result<ShownModel> {
    let name = required_text("name", body.name)?;
    let new_name = required_text("new_name", body.new_name)?;
    r.rename_model(&call.ctx, &call.place, &name, new_name).await.map(ShownModel::from)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Describe {
    name: Option<String>,
    description: Option<String>,
}

async fn describe(r: Arc<Registry>, call: Call, body: Describe) -> Result<ShownModel> {
    let name = required_text("name", body.name)?;
    let text = body.description.unwrap_or_default();
    r.describe_model(&call.ctx, &call.place, &name, text).await.map(ShownModel::from)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tag {
    name: Option<String>,
    key: Option<String>,
    value: Option<String>,
}

async fn set_tag(r: Arc<Registry>, call: Call, body: Tag) -> Result<Nothing> {
    let name = required_text("name", body.name)?;
    let tag = (required_text("key", body.key)?, body.value.unwrap_or_default());
    r.tag_model(&call.ctx, &call.place, &name, tag).await.map(|()| Nothing {})
}

async fn untag(r: Arc<Registry>, call: Call, body: Tag) -> Result<Nothing> {
    let name = required_text("name", body.name)?;
    let key = required_text("key", body.key)?;
    r.untag_model(&call.ctx, &call.place, &name, key).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Search {
    filter: Option<String>,
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
    registered_models: Vec<ModelShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn search(r: Arc<Registry>, call: Call, query: Search) -> Result<Found> {
    let search = ModelSearch {
        filter: query.filter,
        order_by: query.order_by,
        limit: limit(query.max_results, USUAL, MOST)?,
        page_token: query.page_token,
    };
    let (models, next_page_token) = r.search_models(&call.ctx, &call.place, search).await?;
    let registered_models = models.into_iter().map(ModelShape::from).collect();
    Ok(Found { registered_models, next_page_token })
}
