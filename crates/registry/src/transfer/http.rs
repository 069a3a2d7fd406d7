//! `/v1/tenants/{tenant}/projects/{project}/import/models` and `…/sync/versions`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Result};
use falaj_mlflow::Places;
use falaj_web::{Created, Endpoint, Input, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::{Models, ModelsHere, Synced, SyncedModel};
use crate::{MODEL_IMPORT, MODEL_WRITE, Registry};

const MODELS: &str = "/v1/tenants/{tenant}/projects/{project}/import/models";

const SYNC_VERSIONS: &str = "/v1/tenants/{tenant}/projects/{project}/sync/versions";

/// What the routes work with: the path names the project.
#[derive(Debug)]
struct Moving {
    registry: Registry,
    places: Places,
}

pub(crate) fn routes(registry: &Registry, places: &Places) -> Vec<Endpoint> {
    let moving = Arc::new(Moving { registry: registry.clone(), places: places.clone() });
    Routes::new(moving)
        .post(MODELS, &MODEL_IMPORT, "Import registered models", import)
        .post(SYNC_VERSIONS, &MODEL_WRITE, "Register versions of another store, once", sync)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

async fn import(
    m: Arc<Moving>,
    ctx: Ctx,
    input: Input<ProjectPath, (), Models>,
) -> Result<Created<ModelsHere>> {
    let call = m.places.call(&ctx, &input.path.tenant, &input.path.project).await?;
    m.registry.import_models(&call, input.body).await.map(Created)
}

async fn sync(
    m: Arc<Moving>,
    ctx: Ctx,
    input: Input<ProjectPath, (), SyncedModel>,
) -> Result<Created<Synced>> {
    let call = m.places.call(&ctx, &input.path.tenant, &input.path.project).await?;
    m.registry.sync_versions(&call, input.body).await.map(Created)
}
