//! `…/projects/{project}/model-policy`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Result};
use falaj_web::{Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::policy::Policy;
use crate::{MODEL_GOVERN, MODEL_READ, Registry};

const POLICY: &str = "/v1/tenants/{tenant}/projects/{project}/model-policy";

pub(crate) fn routes(registry: Arc<Registry>) -> Vec<Endpoint> {
    Routes::new(registry)
        .get(POLICY, &MODEL_READ, "See what a project's protected aliases and stages ask for", get)
        .put(POLICY, &MODEL_GOVERN, "Set what protected aliases and stages ask for", put)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

async fn get(r: Arc<Registry>, ctx: Ctx, input: Input<ProjectPath>) -> Result<Ok200<Policy>> {
    let project = r.tenancy().project(&ctx, &input.path.tenant, &input.path.project).await?;
    r.policy(&ctx, &project).await.map(Ok200)
}

async fn put(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<ProjectPath, (), Policy>,
) -> Result<Ok200<Policy>> {
    let project = r.tenancy().project(&ctx, &input.path.tenant, &input.path.project).await?;
    r.set_policy(&ctx, &project, input.body).await.map(Ok200)
}
