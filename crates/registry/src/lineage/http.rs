//! `…/models/{name}/versions/{version}/lineage`.

use std::sync::Arc;

use falaj_base::{Ctx, Result};
use falaj_web::{Endpoint, Input, Ok200, Routes};

use super::service::Lineage;
use crate::evidence::http::VersionPath;
use crate::{MODEL_READ, Registry};

const LINEAGE: &str =
    "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/lineage";

pub(crate) fn routes(registry: Arc<Registry>) -> Vec<Endpoint> {
    Routes::new(registry)
        .get(LINEAGE, &MODEL_READ, "See the run, parameters and datasets behind a version", get)
        .into()
}

async fn get(r: Arc<Registry>, ctx: Ctx, input: Input<VersionPath>) -> Result<Ok200<Lineage>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.lineage(&ctx, &project, &name, version).await.map(Ok200)
}
