//! `/api/features/entities/{name}/rows` and `/api/features/erasures`.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::asked::Nothing;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::erasure::Erasure;
use crate::{FEATURE_ERASE, FEATURE_READ, Features};

const ROWS: &str = "/api/features/entities/{name}/rows";
const ONE: &str = "/api/features/erasures/{erasure}";

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    Api::new(features, places)
        .at(Method::DELETE, ROWS, &FEATURE_ERASE, "Erase the rows of one entity", erase)
        .at(Method::GET, ONE, &FEATURE_READ, "See what became of an erasure", show)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Named {
    name: String,
}

/// Whose rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// The value of each join key of the entity.
    keys: Map<String, Value>,
}

async fn erase(s: Arc<Features>, call: Call, at: Named, asked: Asked) -> Result<Erasure> {
    s.erase(&call.ctx, &call.place, &at.name, asked.keys).await
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    erasure: String,
}

async fn show(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<Erasure> {
    s.visible_erasure(&call.ctx, &call.place, &at.erasure).await
}
