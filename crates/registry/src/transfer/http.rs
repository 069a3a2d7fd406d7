//! `/v1/tenants/{tenant}/projects/{project}/import/models`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Result};
use falaj_mlflow::{Call, Places};
use falaj_web::{Created, Endpoint, Input, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::{Models, ModelsHere};
use crate::{MODEL_IMPORT, Registry};

const MODELS: &str = "/v1/tenants/{tenant}/projects/{project}/import/models";

/// What the route works with: the path names the project.
#[derive(Debug)]
struct Moving {
    registry: Registry,
    places: Places,
}

pub(crate) fn routes(registry: &Registry, places: &Places) -> Vec<Endpoint> {
    let moving = Arc::new(Moving { registry: registry.clone(), places: places.clone() });
    Routes::new(moving).post(MODELS, &MODEL_IMPORT, "Import registered models", import).into()
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
    let place = m.places.named(&ctx, &input.path.tenant, &input.path.project).await?;
    let call = Call { ctx, place, connection: None };
    m.registry.import_models(&call, input.body).await.map(Created)
}
