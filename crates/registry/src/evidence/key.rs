//! The key that signs a tenant's models: made when first needed, sealed by the tenant's own key.

use falaj_base::{Ctx, Error, Result, TenantId, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::signing::{PublicKey, SigningKey};
use crate::{MODEL_READ, MODEL_WRITE, Registry};

/// What a sealed key is bound to besides its tenant.
const PURPOSE: &[u8] = b"model signing key 1";

/// The public half, for whoever verifies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ShownKey {
    /// The SHA-256 of the PEM text: how a signature names its key.
    pub id: String,
    /// P-256, PEM.
    pub public_key: String,
    pub created_at: Timestamp,
}

struct KeyRow {
    shown: ShownKey,
    sealed: Vec<u8>,
}

impl Registry {
    /// The key with which models of this project's tenant are signed.
    pub async fn model_key(&self, ctx: &Ctx, project: &Project) -> Result<ShownKey> {
        ctx.authorize(&MODEL_READ, &project.resource()).await?;
        Ok(self.key_row(project).await?.shown)
    }

    pub(super) async fn signing_key(&self, project: &Project) -> Result<SigningKey> {
        let row = self.key_row(project).await?;
        let tenant = project.tenant_id;
        let opened = self.keys().open_small(Some(tenant), PURPOSE, &row.sealed).await?;
        SigningKey::from_pkcs8(&Zeroizing::new(opened)).map_err(Error::internal)
    }

    /// A key by its id: signatures outlive the key that is used now.
    pub(super) async fn public_key(&self, tenant: TenantId, id: &str) -> Result<PublicKey> {
        let id = id.to_owned();
        let found = self.db().read(move |tx| by_id(tx, tenant, &id)).await?;
        let pem = found.ok_or_else(|| {
            Error::new(&code::CONFLICT, "the key that signed this model is not known any more")
        })?;
        PublicKey::from_pem(&pem).map_err(Error::internal)
    }

    async fn key_row(&self, project: &Project) -> Result<KeyRow> {
        let tenant = project.tenant_id;
        if let Some(row) = self.db().read(move |tx| newest(tx, tenant)).await? {
            return Ok(row);
        }
        let key = SigningKey::generate()?;
        let sealed =
            self.keys().seal_small(Some(tenant), PURPOSE, key.to_pkcs8()?.expose()).await?;
        let (id, pem) = (key.public_key().id().to_string(), key.public_key().pem().to_owned());
        let (ctx, resource) = (Ctx::system("model-evidence"), project.resource());
        ctx.authorize(&MODEL_WRITE, &resource).await?;
        self.db()
            .write(move |tx| {
                // Of two that make the first key at once, one wins and both use it.
                tx.lock(&format!("model-signing-key/{tenant}"))?;
                if let Some(row) = newest(tx, tenant)? {
                    return Ok(row);
                }
                let now = tx.now();
                tx.execute(
                    "INSERT INTO model_signing_key (tenant, id, public_key, sealed, created_at)
                     VALUES ($1, $2, $3, $4, $5)",
                    &params![tenant, &id, &pem, sealed, now],
                )?;
                let change = Change::new(&MODEL_WRITE, &resource)
                    .event("model-signing-key.created", &json!({ "id": id }))
                    .detail("signing_key", &id);
                tx.record(&ctx, change)?;
                newest(tx, tenant)?.ok_or_else(|| Error::internal("a new signing key is not there"))
            })
            .await
    }
}

fn newest(tx: &mut Tx<'_>, tenant: TenantId) -> Result<Option<KeyRow>> {
    let row = tx.query_opt(
        "SELECT id, public_key, sealed, created_at FROM model_signing_key WHERE tenant = $1
         ORDER BY created_at DESC, id LIMIT 1",
        &params![tenant],
    )?;
    row.map(|row| {
        let shown = ShownKey {
            id: row.get("id")?,
            public_key: row.get("public_key")?,
            created_at: row.get("created_at")?,
        };
        Ok(KeyRow { shown, sealed: row.get("sealed")? })
    })
    .transpose()
}

fn by_id(tx: &mut Tx<'_>, tenant: TenantId, id: &str) -> Result<Option<String>> {
    let sql = "SELECT public_key FROM model_signing_key WHERE tenant = $1 AND id = $2";
    tx.query_opt(sql, &params![tenant, id])?.map(|row| row.get("public_key")).transpose()
}
