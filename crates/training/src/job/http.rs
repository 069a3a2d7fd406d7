//! `/api/jobs`, `/api/jobs/{job_id}` and what is below.

use std::sync::Arc;

use falaj_base::{Error, Page, Result};
use falaj_mlflow::asked::{Nothing, Pages};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, Decided};
use super::definition::Definition;
use super::job::Job;
use super::state::State;
use crate::live::Why;
use crate::{JOB_CANCEL, JOB_DELETE, JOB_LOSE, JOB_READ, JOB_SUBMIT, Training};

const ALL: &str = "/api/jobs";
const ONE: &str = "/api/jobs/{job_id}";
const CANCEL: &str = "/api/jobs/{job_id}/cancel";
const LOST: &str = "/api/jobs/{job_id}/lost";
const WHY: &str = "/api/jobs/{job_id}/why";
const ATTEMPTS: &str = "/api/jobs/{job_id}/attempts";
const DECISIONS: &str = "/api/jobs/{job_id}/decisions";

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .post(ALL, &JOB_SUBMIT, "Submit a job", submit)
        .get(ALL, &JOB_READ, "List jobs, the newest first", list)
        .at(Method::GET, ONE, &JOB_READ, "See a job", show)
        .at(Method::DELETE, ONE, &JOB_DELETE, "Delete a job that has ended", delete)
        .at(Method::POST, CANCEL, &JOB_CANCEL, "Cancel a job", cancel)
        .at(
            Method::POST,
            LOST,
            &JOB_LOSE,
            "Say that what another server ran of a job is gone",
            lost,
        )
        .at(Method::GET, WHY, &JOB_READ, "See why a job waits, and when it may start", why)
        .at(Method::GET, ATTEMPTS, &JOB_READ, "List the starts of a job", attempts)
        .at(Method::GET, DECISIONS, &JOB_READ, "List what was decided about a job", decisions)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct At {
    pub(crate) job_id: String,
}

/// Which task of an array; numbers in queries are text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OfTask {
    /// Which task of an array.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    task: Option<i64>,
}

impl OfTask {
    /// The number of a task that was asked for among other things.
    pub(crate) fn of(task: Option<i64>) -> Result<Option<u32>> {
        Self { task }.task()
    }

    pub(crate) fn task(&self) -> Result<Option<u32>> {
        let number =
            |task: i64| u32::try_from(task).map_err(|_| Error::invalid("task", task, "0 or more"));
        self.task.map(number).transpose()
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Listing {
    /// Only jobs in this state.
    state: Option<State>,
    /// Only jobs that do not use what they have.
    #[serde(deserialize_with = "falaj_mlflow::wire::flag")]
    idle: Option<bool>,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<i64>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 2048))]
    page_token: Option<String>,
}

async fn submit(s: Arc<Training>, call: Call, definition: Definition) -> Result<Job> {
    s.submit(&call, definition).await
}

async fn list(s: Arc<Training>, call: Call, asked: Listing) -> Result<Page<Job>> {
    let pages = Pages { page_size: asked.page_size, page_token: asked.page_token };
    s.jobs(&call, (asked.state, asked.idle.unwrap_or(false)), pages.query()?).await
}

async fn show(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<Job> {
    s.shown(&call, &at.job_id).await
}

async fn cancel(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<Job> {
    s.cancel_job(&call, &at.job_id).await
}

async fn delete(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<Job> {
    s.delete_job(&call, &at.job_id).await
}

async fn lost(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<Job> {
    s.lose_job(&call, &at.job_id).await
}

async fn why(s: Arc<Training>, call: Call, at: At, of: OfTask) -> Result<Why> {
    s.why(&call, &at.job_id, of.task()?).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Starts {
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

async fn attempts(s: Arc<Training>, call: Call, at: At, asked: Starts) -> Result<Page<Attempt>> {
    let task = OfTask::of(asked.task)?;
    let pages = Pages { page_size: asked.page_size, page_token: asked.page_token };
    s.attempts(&call, &at.job_id, task, pages.query()?).await
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    items: Vec<Decided>,
}

async fn decisions(s: Arc<Training>, call: Call, at: At, of: OfTask) -> Result<Listed> {
    Ok(Listed { items: s.decisions(&call, &at.job_id, of.task()?).await? })
}
