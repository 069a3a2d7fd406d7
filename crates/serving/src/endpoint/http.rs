//! `…/projects/{project}/endpoints`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Page, PageQuery, Result};
use falaj_governance::tenancy::Project;
use falaj_web::{Endpoint as Route, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::Endpoint;
use super::service::Revision;
use super::spec::Spec;
use crate::{ENDPOINT_DELETE, ENDPOINT_READ, ENDPOINT_WRITE, Serving};

macro_rules! below {
    ($rest:literal) => {
        concat!("/v1/tenants/{tenant}/projects/{project}/endpoints", $rest)
    };
}

pub(crate) fn routes(serving: Arc<Serving>) -> Vec<Route> {
    Routes::new(serving)
        .get(below!(""), &ENDPOINT_READ, "List endpoints", list)
        .get(below!("/{name}"), &ENDPOINT_READ, "See an endpoint", get)
        .put(below!("/{name}"), &ENDPOINT_WRITE, "Deploy models under a name", put)
        .delete(below!("/{name}"), &ENDPOINT_DELETE, "Delete an endpoint", delete)
        .get(below!("/{name}/revisions"), &ENDPOINT_READ, "See what an endpoint was", revisions)
        .post(
            below!("/{name}/rollback"),
            &ENDPOINT_WRITE,
            "Go back to an earlier revision",
            rollback,
        )
        .post(below!("/{name}/pause"), &ENDPOINT_WRITE, "Stop answering", pause)
        .post(below!("/{name}/resume"), &ENDPOINT_WRITE, "Go on answering", resume)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct EndpointPath {
    tenant: Name,
    project: Name,
    pub(crate) name: Name,
}

impl EndpointPath {
    pub(crate) async fn project(&self, s: &Serving, ctx: &Ctx) -> Result<Project> {
        s.registry().tenancy().project(ctx, &self.tenant, &self.project).await
    }
}

async fn list(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<ProjectPath, PageQuery>,
) -> Result<Ok200<Page<Endpoint>>> {
    let ProjectPath { tenant, project } = &input.path;
    let project = s.registry().tenancy().project(&ctx, tenant, project).await?;
    s.endpoints(&ctx, &project, input.query).await.map(Ok200)
}

async fn get(s: Arc<Serving>, ctx: Ctx, input: Input<EndpointPath>) -> Result<Ok200<Endpoint>> {
    let project = input.path.project(&s, &ctx).await?;
    s.endpoint(&ctx, &project, &input.path.name).await.map(Ok200)
}

/// What an endpoint is to serve from now on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Deployment {
    spec: Spec,
    /// The revision that this replaces, 0 if there should be none; refused if it is another.
    revision: Option<i64>,
}

async fn put(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<EndpointPath, (), Deployment>,
) -> Result<Ok200<Endpoint>> {
    let project = input.path.project(&s, &ctx).await?;
    let Deployment { spec, revision } = input.body;
    s.deploy(&ctx, &project, input.path.name, spec, revision).await.map(Ok200)
}

async fn delete(s: Arc<Serving>, ctx: Ctx, input: Input<EndpointPath>) -> Result<NoContent> {
    let project = input.path.project(&s, &ctx).await?;
    s.delete_endpoint(&ctx, &project, input.path.name).await.map(|()| NoContent)
}

#[derive(Debug, Serialize, JsonSchema)]
struct Revisions {
    revisions: Vec<Revision>,
}

async fn revisions(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<EndpointPath>,
) -> Result<Ok200<Revisions>> {
    let project = input.path.project(&s, &ctx).await?;
    let revisions = s.endpoint_revisions(&ctx, &project, &input.path.name).await?;
    Ok(Ok200(Revisions { revisions }))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Rollback {
    /// The revision to go back to; without it the one before the last change.
    revision: Option<i64>,
}

async fn rollback(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<EndpointPath, (), Rollback>,
) -> Result<Ok200<Endpoint>> {
    let project = input.path.project(&s, &ctx).await?;
    let to = input.body.revision;
    s.roll_endpoint_back(&ctx, &project, input.path.name, to).await.map(Ok200)
}

async fn pause(s: Arc<Serving>, ctx: Ctx, input: Input<EndpointPath>) -> Result<Ok200<Endpoint>> {
    let project = input.path.project(&s, &ctx).await?;
    s.pause_endpoint(&ctx, &project, input.path.name, true).await.map(Ok200)
}

async fn resume(s: Arc<Serving>, ctx: Ctx, input: Input<EndpointPath>) -> Result<Ok200<Endpoint>> {
    let project = input.path.project(&s, &ctx).await?;
    s.pause_endpoint(&ctx, &project, input.path.name, false).await.map(Ok200)
}
