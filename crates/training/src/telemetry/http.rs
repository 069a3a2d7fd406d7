//! `/api/jobs/{job_id}/telemetry`, `/api/jobs/{job_id}/hints` and `/api/hints`.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::asked::Nothing;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service::{JobHints, Telemetry};
use crate::job::http::{At, OfTask};
use crate::name::QueueName;
use crate::{JOB_READ, Training};

const TELEMETRY: &str = "/api/jobs/{job_id}/telemetry";
const HINTS: &str = "/api/jobs/{job_id}/hints";
const ALL: &str = "/api/hints";

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .at(Method::GET, TELEMETRY, &JOB_READ, "See what a job uses and has used", telemetry)
        .at(Method::GET, HINTS, &JOB_READ, "See what a job should ask for", of_job)
        .get(ALL, &JOB_READ, "See what jobs of a project should ask for", all)
        .into()
}

async fn telemetry(s: Arc<Training>, call: Call, at: At, of: OfTask) -> Result<Telemetry> {
    s.telemetry(&call, &at.job_id, of.task()?).await
}

async fn of_job(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<JobHints> {
    s.job_hints(&call, &at.job_id).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    /// Only jobs of this queue.
    queue: Option<QueueName>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    items: Vec<JobHints>,
}

async fn all(s: Arc<Training>, call: Call, asked: Asked) -> Result<Listed> {
    Ok(Listed { items: s.hints(&call, asked.queue).await? })
}
