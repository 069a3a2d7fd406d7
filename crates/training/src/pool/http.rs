//! `/api/pools`.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::asked::Nothing;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolShown;
use crate::{POOL_READ, Training};

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .get("/api/pools", &POOL_READ, "List the pools that jobs can run in", list)
        .into()
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    items: Vec<PoolShown>,
}

async fn list(s: Arc<Training>, call: Call, _: Nothing) -> Result<Listed> {
    Ok(Listed { items: s.pools(&call).await? })
}
