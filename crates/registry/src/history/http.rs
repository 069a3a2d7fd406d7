//! `/v1/tenants/{tenant}/projects/{project}/models/{name}`: what MLflow's protocol has no words for.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Page, PageQuery, Result};
use falaj_web::{Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::entry::Entry;
use crate::alias::Rolled;
use crate::{MODEL_PROMOTE, MODEL_READ, Registry};

const HISTORY: &str = "/v1/tenants/{tenant}/projects/{project}/models/{name}/history";
const ROLLBACK: &str =
    "/v1/tenants/{tenant}/projects/{project}/models/{name}/aliases/{alias}/rollback";

pub(crate) fn routes(registry: Arc<Registry>) -> Vec<Endpoint> {
    Routes::new(registry)
        .get(HISTORY, &MODEL_READ, "List the moves of a model's aliases and stages", list)
        .post(ROLLBACK, &MODEL_PROMOTE, "Undo the last move of an alias", roll_back)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ModelPath {
    tenant: Name,
    project: Name,
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AliasPath {
    tenant: Name,
    project: Name,
    name: String,
    alias: String,
}

async fn list(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ModelPath, PageQuery>,
) -> Result<Ok200<Page<Entry>>> {
    let ModelPath { tenant, project, name } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.history(&ctx, &project, &name, input.query).await.map(Ok200)
}

async fn roll_back(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<AliasPath, ()>,
) -> Result<Ok200<Rolled>> {
    let AliasPath { tenant, project, name, alias } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.roll_alias_back(&ctx, &project, &name, alias).await.map(Ok200)
}
