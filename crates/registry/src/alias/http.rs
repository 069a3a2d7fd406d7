//! Aliases over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::required_text;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::version::parse_number;
use crate::wire::{Nothing, ShownVersion};
use crate::{MODEL_PROMOTE, MODEL_READ, Registry};

pub(crate) fn routes(registry: Arc<Registry>, places: Places) -> Vec<Endpoint> {
    let path = "/api/2.0/mlflow/registered-models/alias";
    Api::new(registry, places)
        .post(path, &MODEL_PROMOTE, "Point an alias at a version", set)
        .get(path, &MODEL_READ, "See the version an alias points at", get)
        .with_body(Method::DELETE, path, &MODEL_PROMOTE, "Delete an alias", delete)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Set {
    name: Option<String>,
    alias: Option<String>,
    version: Option<String>,
}

async fn set(r: Arc<Registry>, call: Call, body: Set) -> Result<Nothing> {
    let name = required_text("name", body.name)?;
    let alias = required_text("alias", body.alias)?;
    let number = parse_number(&required_text("version", body.version)?)?;
    r.set_alias(&call.ctx, &call.place, &name, alias, number).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ByAlias {
    name: Option<String>,
    alias: Option<String>,
}

async fn get(r: Arc<Registry>, call: Call, query: ByAlias) -> Result<ShownVersion> {
    let name = required_text("name", query.name)?;
    let alias = required_text("alias", query.alias)?;
    r.version_by_alias(&call.ctx, &call.place, &name, alias).await.map(ShownVersion::from)
}

async fn delete(r: Arc<Registry>, call: Call, body: ByAlias) -> Result<Nothing> {
    let name = required_text("name", body.name)?;
    let alias = required_text("alias", body.alias)?;
    r.delete_alias(&call.ctx, &call.place, &name, alias).await.map(|()| Nothing {})
}
