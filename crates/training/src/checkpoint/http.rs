//! `/api/jobs/{job_id}/report` and `/api/jobs/{job_id}/checkpoints`.

use std::sync::Arc;

use falaj_base::{Page, Result};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;

use super::report::{Report, Reported};
use super::store::Checkpoint;
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

async fn list(s: Arc<Training>, call: Call, at: At, of: OfTask) -> Result<Page<Checkpoint>> {
    s.checkpoints(&call, &at.job_id, of.task()?).await
}
