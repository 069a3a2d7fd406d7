//! `…/models/{name}/versions/{version}/profile`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Result};
use falaj_registry::MODEL_READ;
use falaj_web::{Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::record::Profile;
use crate::Serving;

const PROFILE: &str =
    "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/profile";

pub(crate) fn routes(serving: Arc<Serving>) -> Vec<Endpoint> {
    Routes::new(serving)
        .get(PROFILE, &MODEL_READ, "See whether a version can be served, and how it answers", get)
        .into()
}

/// One version of one model.
#[derive(Debug, Deserialize, JsonSchema)]
struct VersionPath {
    tenant: Name,
    project: Name,
    name: String,
    version: i64,
}

async fn get(s: Arc<Serving>, ctx: Ctx, input: Input<VersionPath>) -> Result<Ok200<Profile>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = s.registry().tenancy().project(&ctx, &tenant, &project).await?;
    s.profile(&ctx, &project, &name, version).await.map(Ok200)
}
