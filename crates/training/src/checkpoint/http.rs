//! `/api/jobs/{job_id}/report` and `/api/jobs/{job_id}/checkpoints`.

use std::sync::Arc;

use falaj_base::{Page, Result};
use falaj_mlflow::asked::Pages;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::report::{Report, Reported};
use super::store::CheckpointShown;
use crate::job::http::{At, OfTask};
use crate::{JOB_READ, JOB_REPORT, Training};

const REPORT: &str = "/api/jobs/{job_id}/report";
const CHECKPOINTS: &str = "/api/jobs/{job_id}/checkpoints";

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .at(Method::POST, REPORT, &JOB_REPORT, "Report the step or a checkpoint of a rank", report)
        .at(Method::GET, CHECKPOINTS, &JOB_READ, "List the whole checkpoints of a job", list)
        .into()
}

async fn report(s: Arc<Training>, call: Call, at: At, report: Report) -> Result<Reported> {
    s.report(&call, &at.job_id, report).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Listing {
    /// Only those of this task.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    task: Option<i64>,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<i64>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 2048))]
    page_token: Option<String>,
}

async fn list(
    s: Arc<Training>,
    call: Call,
    at: At,
    asked: Listing,
) -> Result<Page<CheckpointShown>> {
    let task = OfTask::of(asked.task)?;
    let pages = Pages { page_size: asked.page_size, page_token: asked.page_token };
    s.checkpoints(&call, &at.job_id, task, pages.query()?).await
}
