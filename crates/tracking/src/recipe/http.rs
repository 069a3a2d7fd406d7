//! Recipes and differences over HTTP.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Result};
use falaj_web::{Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::diff::RunDiff;
use super::recipe::Recipe;
use crate::RUN_READ;
use crate::native::{Native, RUN_DIFF, RUN_RECIPE, RunPath};

pub(crate) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    Routes::new(native.clone())
        .get(RUN_RECIPE, &RUN_READ, "Show how a run came to be", recipe)
        .get(RUN_DIFF, &RUN_READ, "Show what differs between two runs", diff)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PairPath {
    tenant: Name,
    project: Name,
    run: String,
    other: String,
}

async fn recipe(n: Arc<Native>, ctx: Ctx, input: Input<RunPath>) -> Result<Ok200<Recipe>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().recipe(&call, &input.path.run).await.map(Ok200)
}

async fn diff(n: Arc<Native>, ctx: Ctx, input: Input<PairPath>) -> Result<Ok200<RunDiff>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    n.tracking().diff_runs(&call, &input.path.run, &input.path.other).await.map(Ok200)
}
