//! Issues over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, required_text};
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_tracking::ExperimentId;
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::issue::{Issue, IssueChange, Severity, Status};
use super::search::{Counted, IssueSearch};
use super::store::Placed;
use crate::{TRACE_READ, TRACE_WRITE, Traces};

const ALL: &str = "/api/3.0/mlflow/issues";
const ONE: &str = "/api/3.0/mlflow/issues/{issue_id}";
const SEARCH: &str = "/api/3.0/mlflow/issues/search";

/// How many issues one page holds unless the caller says otherwise, and at most, as in MLflow.
const PAGE: i64 = 100;
const MAX_PAGE: i64 = 50_000;

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    Api::new(traces, places)
        .post(ALL, &TRACE_WRITE, "Create an issue", create)
        .post(SEARCH, &TRACE_READ, "Search issues", search)
        .at(Method::GET, ONE, &TRACE_READ, "See an issue", get)
        .at(Method::PATCH, ONE, &TRACE_WRITE, "Change an issue", update)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Create {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    name: Option<String>,
    description: Option<String>,
    status: Option<String>,
    severity: Option<String>,
    #[serde(alias = "rootCauses", deserialize_with = "read::list")]
    root_causes: Vec<String>,
    #[serde(alias = "sourceRunId")]
    source_run_id: Option<String>,
    #[serde(deserialize_with = "read::list")]
    categories: Vec<String>,
    #[serde(alias = "createdBy")]
    created_by: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    issue: IssueShape,
}

#[derive(Debug, Serialize, JsonSchema)]
struct IssueShape {
    issue_id: String,
    experiment_id: String,
    name: String,
    description: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    root_causes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_run_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    created_timestamp: i64,
    last_updated_timestamp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_count: Option<usize>,
}

fn shape(experiment: ExperimentId, issue: Issue, trace_count: Option<usize>) -> IssueShape {
    IssueShape {
        issue_id: issue.id,
        experiment_id: experiment.to_string(),
        name: issue.name,
        description: issue.description,
        status: issue.status.as_str(),
        severity: issue.severity.map(Severity::as_str),
        root_causes: issue.root_causes,
        source_run_id: issue.source_run,
        categories: issue.categories,
        created_timestamp: issue.created_at,
        last_updated_timestamp: issue.updated_at,
        created_by: issue.created_by,
        trace_count,
    }
}

fn shown(Placed { experiment_id, issue }: Placed) -> Shown {
    Shown { issue: shape(experiment_id, issue, None) }
}

/// An empty text says nothing.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

async fn create(t: Arc<Traces>, call: Call, body: Create) -> Result<Shown> {
    let experiment: ExperimentId = required_text("experiment_id", body.experiment_id)?.parse()?;
    let now = t.tracking().now_ms();
    let issue = Issue {
        id: Issue::new_id(),
        name: required_text("name", body.name)?,
        description: required_text("description", body.description)?,
        status: body.status.as_deref().map(Status::read).transpose()?.unwrap_or_default(),
        severity: body.severity.as_deref().map(Severity::read).transpose()?,
        root_causes: body.root_causes,
        categories: body.categories,
        source_run: given(body.source_run_id),
        created_by: given(body.created_by),
        created_at: now,
        updated_at: now,
    };
    let made = t.create_issue(&call, experiment, issue).await?;
    Ok(Shown { issue: shape(experiment, made, None) })
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ById {
    issue_id: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Empty {}

async fn get(t: Arc<Traces>, call: Call, path: ById, _: Empty) -> Result<Shown> {
    t.issue(&call, &path.issue_id).await.map(shown)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Update {
    name: Option<String>,
    description: Option<String>,
    status: Option<String>,
    severity: Option<String>,
}

async fn update(t: Arc<Traces>, call: Call, path: ById, body: Update) -> Result<Shown> {
    let change = IssueChange {
        name: given(body.name),
        description: given(body.description),
        status: body.status.as_deref().map(Status::read).transpose()?,
        severity: body.severity.as_deref().map(Severity::read).transpose()?,
    };
    t.update_issue(&call, &path.issue_id, change).await.map(shown)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Search {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
    #[serde(alias = "filterString")]
    filter_string: Option<String>,
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
    #[serde(alias = "includeTraceCount", deserialize_with = "read::flag")]
    include_trace_count: Option<bool>,
}

/// The token is there even when it is empty, as in MLflow.
#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    issues: Vec<IssueShape>,
    next_page_token: String,
}

async fn search(t: Arc<Traces>, call: Call, body: Search) -> Result<Found> {
    let asked = body.max_results.unwrap_or(PAGE);
    let limit = usize::try_from(asked).ok().filter(|_| (1..=MAX_PAGE).contains(&asked));
    let limit = limit.ok_or_else(|| {
        invalid("max_results", &json!(asked), &format!("a page holds 1 to {MAX_PAGE}"))
    })?;
    let search = IssueSearch {
        experiment: given(body.experiment_id).map(|id| id.parse()).transpose()?,
        filter: body.filter_string,
        limit,
        page_token: body.page_token,
        counted: body.include_trace_count.unwrap_or_default(),
    };
    let (found, next) = t.search_issues(&call, search).await?;
    let one =
        |(Placed { experiment_id, issue }, count): Counted| shape(experiment_id, issue, count);
    let issues = found.into_iter().map(one).collect();
    Ok(Found { issues, next_page_token: next.unwrap_or_default() })
}
