//! `/api/datasets` and `/api/datasets/{name}`.

use std::sync::Arc;

use falaj_base::{Page, Result};
use falaj_mlflow::asked::{Nothing, Pages};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::dataset::{Dataset, Described, NewDataset};
use crate::{DATASET_DELETE, DATASET_READ, DATASET_WRITE, Datasets};

const ALL: &str = "/api/datasets";
const ONE: &str = "/api/datasets/{name}";
const RESTORE: &str = "/api/datasets/{name}/restore";

pub(crate) fn routes(datasets: Arc<Datasets>, places: Places) -> Vec<Endpoint> {
    Api::new(datasets, places)
        .post(ALL, &DATASET_WRITE, "Create a dataset", create)
        .get(ALL, &DATASET_READ, "List datasets", list)
        .at(Method::GET, ONE, &DATASET_READ, "See a dataset", show)
        .at(Method::PUT, ONE, &DATASET_WRITE, "Say anew what a dataset is", describe)
        .at(Method::DELETE, ONE, &DATASET_DELETE, "Delete a dataset", delete)
        .at(Method::POST, RESTORE, &DATASET_DELETE, "Restore a deleted dataset", restore)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    name: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct How {
    /// Remove it at once, rather than after `datasets.deleted_keep`.
    purge: bool,
}

async fn create(s: Arc<Datasets>, call: Call, new: NewDataset) -> Result<Dataset> {
    s.create(&call.ctx, &call.place, new).await
}

async fn list(s: Arc<Datasets>, call: Call, asked: Pages) -> Result<Page<Dataset>> {
    s.list(&call.ctx, &call.place, asked.query()?).await
}

async fn show(s: Arc<Datasets>, call: Call, at: At, _: Nothing) -> Result<Dataset> {
    s.show(&call.ctx, &call.place, &at.name).await
}

async fn describe(s: Arc<Datasets>, call: Call, at: At, about: Described) -> Result<Dataset> {
    s.describe(&call.ctx, &call.place, &at.name, about).await
}

async fn delete(s: Arc<Datasets>, call: Call, at: At, how: How) -> Result<Dataset> {
    s.delete(&call.ctx, &call.place, &at.name, how.purge).await
}

async fn restore(s: Arc<Datasets>, call: Call, at: At, _: Nothing) -> Result<Dataset> {
    s.restore(&call.ctx, &call.place, &at.name).await
}
