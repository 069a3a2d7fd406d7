//! `…/models/{name}/versions/{version}/card`.

use std::sync::Arc;

use falaj_base::{Ctx, Result};
use falaj_web::{Endpoint, Input, Ok200, Routes};

use super::card::{Card, NewCard};
use crate::evidence::http::VersionPath;
use crate::{MODEL_READ, MODEL_WRITE, Registry};

const CARD: &str = "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/card";

pub(crate) fn routes(registry: Arc<Registry>) -> Vec<Endpoint> {
    Routes::new(registry)
        .get(CARD, &MODEL_READ, "See the card of a version", get)
        .put(CARD, &MODEL_WRITE, "Write the card of a version", put)
        .into()
}

async fn get(r: Arc<Registry>, ctx: Ctx, input: Input<VersionPath>) -> Result<Ok200<Card>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.card(&ctx, &project, &name, version).await.map(Ok200)
}

async fn put(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<VersionPath, (), NewCard>,
) -> Result<Ok200<Card>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.write_card(&ctx, &project, (&name, version), input.body).await.map(Ok200)
}
