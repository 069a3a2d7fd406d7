//! `…/models/{name}/versions/{version}/signature`, `scan`, `bom` and `verification`.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Result, Timestamp};
use falaj_web::{Endpoint, Input, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::key::ShownKey;
use super::record::{Evidence, SignedFile, State};
use super::verify::Checked;
use crate::scan::{Finding, Verdict};
use crate::{MODEL_PROMOTE, MODEL_READ, Registry};

const SIGNATURE: &str =
    "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/signature";
const SCAN: &str = "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/scan";
const BOM: &str = "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/bom";
const VERIFICATION: &str =
    "/v1/tenants/{tenant}/projects/{project}/models/{name}/versions/{version}/verification";
const KEY: &str = "/v1/tenants/{tenant}/projects/{project}/model-signing-key";

pub(crate) fn routes(registry: Arc<Registry>) -> Vec<Endpoint> {
    Routes::new(registry)
        .get(SIGNATURE, &MODEL_READ, "See the signature over a version's files", signature)
        .post(SIGNATURE, &MODEL_PROMOTE, "Sign the files of a version as they are now", sign)
        .get(SCAN, &MODEL_READ, "See which files of a version could run code", scan)
        .get(BOM, &MODEL_READ, "See the bill of materials of a version (CycloneDX)", bom)
        .get(VERIFICATION, &MODEL_READ, "Check a version's files against its signature", verify)
        .get(KEY, &MODEL_READ, "See the public key that verifies a tenant's models", key)
        .into()
}

/// One version of one model.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct VersionPath {
    pub(crate) tenant: Name,
    pub(crate) project: Name,
    pub(crate) name: String,
    pub(crate) version: i64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ShownSignature {
    state: State,
    /// Why there is no signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// One digest for all files: the subject of the signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_at: Option<Timestamp>,
    /// The Sigstore bundle: saved as `model.sig`, the stock `model-signing` tool verifies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<Value>,
    files: Vec<SignedFile>,
}

impl From<Evidence> for ShownSignature {
    fn from(evidence: Evidence) -> Self {
        Self {
            state: evidence.state,
            reason: evidence.reason,
            digest: evidence.digest,
            key_id: evidence.key,
            signed_at: evidence.made_at,
            bundle: evidence.signature.and_then(|text| serde_json::from_str(&text).ok()),
            files: evidence.files,
        }
    }
}

async fn signature(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<VersionPath>,
) -> Result<Ok200<ShownSignature>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    let version = r.version(&ctx, &project, &name, version).await?;
    Ok(Ok200(r.evidence(&project, &version).await?.into()))
}

async fn sign(
    r: Arc<Registry>,
    ctx: Ctx,
    input: Input<VersionPath>,
) -> Result<Ok200<ShownSignature>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    Ok(Ok200(r.sign_version(&ctx, &project, (&name, version)).await?.into()))
}

#[derive(Debug, Serialize, JsonSchema)]
struct ShownScan {
    state: State,
    /// Why there is no finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    files: Vec<Finding>,
}

async fn scan(r: Arc<Registry>, ctx: Ctx, input: Input<VersionPath>) -> Result<Ok200<ShownScan>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    let version = r.version(&ctx, &project, &name, version).await?;
    let evidence = r.evidence(&project, &version).await?;
    let verdict = evidence.scan.as_ref().map(|scan| scan.verdict);
    let files = evidence.scan.map(|scan| scan.files).unwrap_or_default();
    Ok(Ok200(ShownScan { state: evidence.state, reason: evidence.reason, verdict, files }))
}

async fn bom(r: Arc<Registry>, ctx: Ctx, input: Input<VersionPath>) -> Result<Ok200<Value>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.bill_of_materials(&ctx, &project, &name, version).await.map(Ok200)
}

async fn verify(r: Arc<Registry>, ctx: Ctx, input: Input<VersionPath>) -> Result<Ok200<Checked>> {
    let VersionPath { tenant, project, name, version } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.verify_version(&ctx, &project, &name, version).await.map(Ok200)
}

async fn key(r: Arc<Registry>, ctx: Ctx, input: Input<ProjectPath>) -> Result<Ok200<ShownKey>> {
    let ProjectPath { tenant, project } = input.path;
    let project = r.tenancy().project(&ctx, &tenant, &project).await?;
    r.model_key(&ctx, &project).await.map(Ok200)
}
