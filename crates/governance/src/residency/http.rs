//! `/v1/zones` and `/v1/residency`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Page, PageQuery, Result, Timestamp};
use falaj_web::{Created, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{Transfer, Zone};
use super::service::Residency;
use super::{TRANSFER_CREATE, TRANSFER_DELETE, ZONE_CREATE, ZONE_DELETE, ZONE_READ};

#[must_use]
pub fn routes(service: Arc<Residency>) -> Routes<Residency> {
    Routes::new(service)
        .post("/v1/zones", &ZONE_CREATE, "Declare a zone", create)
        .get("/v1/zones", &ZONE_READ, "List zones", list)
        .get("/v1/zones/{zone}", &ZONE_READ, "Show a zone", get)
        .delete("/v1/zones/{zone}", &ZONE_DELETE, "Remove a zone", delete)
        .post("/v1/zones/{zone}/transfers", &TRANSFER_CREATE, "Allow a transfer", allow)
        .get("/v1/zones/{zone}/transfers", &ZONE_READ, "List allowed transfers", transfers)
        .delete("/v1/zones/{zone}/transfers/{to}", &TRANSFER_DELETE, "End a transfer", end)
        .post("/v1/residency/check", &ZONE_READ, "Would this placement be allowed?", check)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ZonePath {
    zone: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TransferPath {
    zone: Name,
    to: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewZone {
    name: Name,
    /// Whose law holds there: for instance an ISO 3166 country code.
    #[schemars(length(min = 1, max = 64))]
    jurisdiction: String,
    #[schemars(length(max = 1024))]
    description: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewTransfer {
    to: Name,
    /// Why it is lawful: an article, an approval, a contract.
    #[schemars(length(min = 1, max = 1024))]
    basis: String,
    expires_at: Option<Timestamp>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Placement {
    from: Name,
    to: Name,
}

/// The rule that allows the placement. A refusal is an error with code `residency`.
#[derive(Debug, Serialize, JsonSchema)]
struct Verdict {
    rule: String,
}

async fn create(
    s: Arc<Residency>,
    ctx: Ctx,
    input: Input<(), (), NewZone>,
) -> Result<Created<Zone>> {
    let NewZone { name, jurisdiction, description } = input.body;
    let jurisdiction = crate::text::bounded("jurisdiction", jurisdiction, 1, 64)?;
    let description = crate::text::optional("description", description, 1024)?;
    s.create(&ctx, name, jurisdiction, description).await.map(Created)
}

async fn list(
    s: Arc<Residency>,
    ctx: Ctx,
    input: Input<(), PageQuery>,
) -> Result<Ok200<Page<Zone>>> {
    s.list(&ctx, input.query).await.map(Ok200)
}

async fn get(s: Arc<Residency>, ctx: Ctx, input: Input<ZonePath>) -> Result<Ok200<Zone>> {
    s.get(&ctx, input.path.zone).await.map(Ok200)
}

async fn delete(s: Arc<Residency>, ctx: Ctx, input: Input<ZonePath>) -> Result<NoContent> {
    s.delete(&ctx, input.path.zone).await.map(|()| NoContent)
}

async fn allow(
    s: Arc<Residency>,
    ctx: Ctx,
    input: Input<ZonePath, (), NewTransfer>,
) -> Result<Created<Transfer>> {
    let NewTransfer { to, basis, expires_at } = input.body;
    let basis = crate::text::bounded("basis", basis, 1, 1024)?;
    s.allow_transfer(&ctx, input.path.zone, to, basis, expires_at).await.map(Created)
}

async fn transfers(
    s: Arc<Residency>,
    ctx: Ctx,
    input: Input<ZonePath, PageQuery>,
) -> Result<Ok200<Page<Transfer>>> {
    s.transfers(&ctx, input.path.zone, input.query).await.map(Ok200)
}

async fn end(s: Arc<Residency>, ctx: Ctx, input: Input<TransferPath>) -> Result<NoContent> {
    s.end_transfer(&ctx, input.path.zone, input.path.to).await.map(|()| NoContent)
}

async fn check(
    s: Arc<Residency>,
    ctx: Ctx,
    input: Input<(), (), Placement>,
) -> Result<Ok200<Verdict>> {
    let permit = s.explain(&ctx, input.body.from, input.body.to).await?;
    Ok(Ok200(Verdict { rule: permit.0 }))
}
