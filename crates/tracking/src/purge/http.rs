//! Purging, holds and retention over HTTP.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Page, Result};
use falaj_web::{Endpoint, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::gc::Gc;
use super::hold::{Hold, NewHold};
use super::report::GcReport;
use super::retention::Retention;
use super::service::Gone;
use crate::native::{
    EXPERIMENT_PURGED, ExperimentPath, GARBAGE, HOLD, HOLDS, MODEL_PURGED, Native, ProjectPath,
    RETENTION, RUN_PURGED, RunPath,
};
use crate::{
    EXPERIMENT_PURGE, GC, HOLD_READ, HOLD_WRITE, RETENTION_READ, RETENTION_WRITE, RUN_PURGE,
    RUN_READ,
};

pub(crate) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    Routes::new(native.clone())
        .post(RUN_PURGED, &RUN_PURGE, "Delete a run for good", run)
        .post(MODEL_PURGED, &RUN_PURGE, "Delete a logged model for good", model)
        .post(EXPERIMENT_PURGED, &EXPERIMENT_PURGE, "Delete an experiment for good", experiment)
        .get(GARBAGE, &RUN_READ, "Show what garbage collection would purge", garbage)
        .post(GARBAGE, &GC, "Purge what was deleted long enough ago", collect)
        .get(RETENTION, &RETENTION_READ, "Show how long deleted things are kept", retention)
        .put(RETENTION, &RETENTION_WRITE, "Set how long deleted things are kept", set_retention)
        .get(HOLDS, &HOLD_READ, "List the legal holds of a project", holds)
        .put(HOLD, &HOLD_WRITE, "Set a legal hold", set_hold)
        .delete(HOLD, &HOLD_WRITE, "Release a legal hold", release_hold)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ModelPath {
    tenant: Name,
    project: Name,
    model: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct HoldPath {
    tenant: Name,
    project: Name,
    name: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Purge {
    /// Also if it is not deleted.
    #[serde(default)]
    force: bool,
}

async fn run(n: Arc<Native>, ctx: Ctx, input: Input<RunPath, (), Purge>) -> Result<Ok200<Gone>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().purge_run(&call, &input.path.run, input.body.force).await.map(Ok200)
}

async fn model(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ModelPath, (), Purge>,
) -> Result<Ok200<Gone>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().purge_logged_model(&call, &input.path.model, input.body.force).await.map(Ok200)
}

async fn experiment(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ExperimentPath, (), Purge>,
) -> Result<Ok200<Gone>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let id = input.path.experiment.parse()?;
    n.tracking().purge_experiment(&call, id, input.body.force).await.map(Ok200)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Age {
    /// Days since deletion; the project's retention if absent.
    #[schemars(range(min = 0, max = 36500))]
    older_than_days: Option<i64>,
}

impl From<Age> for Gc {
    fn from(age: Age) -> Self {
        Self { older_than_days: age.older_than_days }
    }
}

async fn garbage(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, Age>,
) -> Result<Ok200<GcReport>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().garbage(&call, input.query.into()).await.map(Ok200)
}

async fn collect(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, (), Age>,
) -> Result<Ok200<GcReport>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().collect_garbage(&call, input.body.into()).await.map(Ok200)
}

async fn retention(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath>,
) -> Result<Ok200<Retention>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().retention(&call).await.map(Ok200)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewRetention {
    /// Days between deletion and purge; null keeps what was deleted.
    #[schemars(range(min = 0, max = 36500))]
    deleted_days: Option<i64>,
}

async fn set_retention(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, (), NewRetention>,
) -> Result<Ok200<Retention>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().set_retention(&call, input.body.deleted_days).await.map(Ok200)
}

async fn holds(n: Arc<Native>, ctx: Ctx, input: Input<ProjectPath>) -> Result<Ok200<Page<Hold>>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let items = n.tracking().holds(&call).await?;
    Ok(Ok200(Page { items, next_page_token: None }))
}

async fn set_hold(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<HoldPath, (), NewHold>,
) -> Result<Ok200<Hold>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().set_hold(&call, input.path.name, input.body).await.map(Ok200)
}

async fn release_hold(n: Arc<Native>, ctx: Ctx, input: Input<HoldPath>) -> Result<NoContent> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().release_hold(&call, input.path.name).await.map(|()| NoContent)
}
