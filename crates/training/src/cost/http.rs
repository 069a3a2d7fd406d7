//! `/api/costs`.

use std::sync::Arc;

use falaj_base::{Result, Timestamp};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{By, CostLine};
use crate::{COST_READ, Training};

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .get("/api/costs", &COST_READ, "See what jobs have used and cost", report)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    /// What the lines are about; `queue` if absent.
    by: By,
    /// Only what was used since.
    from: Option<Timestamp>,
    /// Only what was used until then.
    to: Option<Timestamp>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    items: Vec<CostLine>,
}

async fn report(s: Arc<Training>, call: Call, asked: Asked) -> Result<Listed> {
    Ok(Listed { items: s.costs(&call, asked.by, asked.from, asked.to).await? })
}
