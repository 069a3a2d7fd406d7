//! `…/projects/{project}/model-approvals`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Page, PageQuery, Result};
use falaj_web::{Created, Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::approval::{Approval, NewApproval, Verb};
use crate::{MODEL_PROMOTE, MODEL_READ, MODEL_WITHDRAW, MODEL_WRITE, Registry};

const ALL: &str = "/v1/tenants/{tenant}/projects/{project}/model-approvals";
const APPROVE: &str = "/v1/tenants/{tenant}/projects/{project}/model-approvals/{approval}/approve";
const REJECT: &str = "/v1/tenants/{tenant}/projects/{project}/model-approvals/{approval}/reject";
const WITHDRAW: &str =
    "/v1/tenants/{tenant}/projects/{project}/model-approvals/{approval}/withdraw";

pub(crate) fn routes(registry: Arc<Registry>) -> Vec<Endpoint> {
    Routes::new(registry)
        .get(ALL, &MODEL_READ, "List requests to approve a promotion", list)
        .post(ALL, &MODEL_WRITE, "Ask for approval of a promotion", request)
        .post(APPROVE, &MODEL_PROMOTE, "Approve a promotion that somebody else asked for", approve)
        .post(REJECT, &MODEL_PROMOTE, "Reject a promotion", reject)
        .post(WITHDRAW, &MODEL_WITHDRAW, "Take a request back", withdraw)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ApprovalPath {
    tenant: Name,
    project: Name,
    approval: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// Only those that are `open`, `approved`, `rejected`, `withdrawn` or `used`.
    status: Option<String>,
    /// Only those of this model.
    model: Option<String>,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<u32>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 2048))]
    page_token: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Decision {
    /// Why.
    #[serde(default)]
    reason: Option<String>,
}

async fn list(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ProjectPath, Listed>,
) -> Result<Ok200<Page<Approval>>> {
    let project = r.tenancy().project(&ctx, &input.path.tenant, &input.path.project).await?;
    let Listed { status, model, page_size, page_token } = input.query;
    let query = PageQuery { page_size, page_token };
    r.approvals(&ctx, &project, (status, model), query).await.map(Ok200)
}

async fn request(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ProjectPath, (), NewApproval>,
) -> Result<Created<Approval>> {
    let project = r.tenancy().project(&ctx, &input.path.tenant, &input.path.project).await?;
    r.request_approval(&ctx, &project, input.body).await.map(Created)
}

async fn approve(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ApprovalPath, (), Decision>,
) -> Result<Ok200<Approval>> {
    decide(&r, &ctx, input, Verb::Approve).await
}

async fn reject(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ApprovalPath, (), Decision>,
) -> Result<Ok200<Approval>> {
    decide(&r, &ctx, input, Verb::Reject).await
}

async fn withdraw(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ApprovalPath, (), Decision>,
) -> Result<Ok200<Approval>> {
    decide(&r, &ctx, input, Verb::Withdraw).await
}

async fn decide(
    r: &Registry,
    ctx: &Ctx,
    input: Input<ApprovalPath, (), Decision>,
    verb: Verb,
) -> Result<Ok200<Approval>> {
    let ApprovalPath { tenant, project, approval } = input.path;
    let project = r.tenancy().project(ctx, &tenant, &project).await?;
    let reason = input.body.reason;
    r.decide_approval(ctx, &project, &approval, verb, reason).await.map(Ok200)
}
