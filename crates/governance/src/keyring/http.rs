//! `/v1/tenants/{tenant}/keys` and `/v1/keys/root`.

use std::sync::Arc;

use falaj_base::{Ctx, KeyId, Name, Page, PageQuery, Result};
use falaj_store::keys::{KeyInfo, RootInfo};
use falaj_web::{Created, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::service::Keyring;
use super::{KEY_DESTROY, KEY_READ, KEY_ROTATE, ROOT_KEY_READ, ROOT_KEY_ROTATE};

const KEYS: &str = "/v1/tenants/{tenant}/keys";
const ROTATE: &str = "/v1/tenants/{tenant}/keys/rotate";
const DESTROY: &str = "/v1/tenants/{tenant}/keys/{id}/destroy";
const ROOT: &str = "/v1/keys/root";
const ROOT_ROTATE: &str = "/v1/keys/root/rotate";

#[must_use]
pub fn routes(service: Arc<Keyring>) -> Routes<Keyring> {
    Routes::new(service)
        .get(KEYS, &KEY_READ, "List a tenant's keys", list)
        .post(ROTATE, &KEY_ROTATE, "Make a new version of a tenant's key", rotate)
        .post(DESTROY, &KEY_DESTROY, "Destroy a key, and with it what it sealed", destroy)
        .get(ROOT, &ROOT_KEY_READ, "Show the root keys", roots)
        .post(ROOT_ROTATE, &ROOT_KEY_ROTATE, "Make a new version of a root key", rotate_root)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TenantPath {
    tenant: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct KeyPath {
    tenant: Name,
    id: KeyId,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZoneQuery {
    /// The zone whose key is meant; the tenant's or the platform's own if absent.
    zone: Option<Name>,
}

async fn list(
    s: Arc<Keyring>,
    ctx: Ctx,
    input: Input<TenantPath, PageQuery>,
) -> Result<Ok200<Page<KeyInfo>>> {
    s.list(&ctx, &input.path.tenant, input.query).await.map(Ok200)
}

async fn rotate(
    s: Arc<Keyring>,
    ctx: Ctx,
    input: Input<TenantPath, ZoneQuery>,
) -> Result<Created<KeyInfo>> {
    s.rotate(&ctx, &input.path.tenant, input.query.zone).await.map(Created)
}

async fn destroy(s: Arc<Keyring>, ctx: Ctx, input: Input<KeyPath>) -> Result<Ok200<KeyInfo>> {
    s.destroy(&ctx, &input.path.tenant, input.path.id).await.map(Ok200)
}

async fn roots(s: Arc<Keyring>, ctx: Ctx, _: Input) -> Result<Ok200<Page<RootInfo>>> {
    // There are as many as key managers are configured: one page holds them all.
    let items = s.roots(&ctx).await?;
    Ok(Ok200(Page { items, next_page_token: None }))
}

async fn rotate_root(
    s: Arc<Keyring>,
    ctx: Ctx,
    input: Input<(), ZoneQuery>,
) -> Result<Ok200<RootInfo>> {
    s.rotate_root(&ctx, input.query.zone).await.map(Ok200)
}
