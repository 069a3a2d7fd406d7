//! Callbacks: somebody who asked for something is told, once, that it is there.

use falaj_base::{Error, ProjectId, Result, TenantId};
use falaj_store::db::Tx;
use serde_json::Value;

use super::service::{MAX_TEXT, PURPOSE};
use super::store;
use super::url::check_url;
use crate::Registry;
use crate::tag::check_text;

/// Where to call back to. The URL may be a secret of its own.
#[derive(Clone)]
pub struct Callback {
    pub url: String,
    /// What the call is signed with, sealed by the tenant's key.
    pub secret: Option<Vec<u8>>,
}

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

impl Registry {
    /// A callback to a place that webhooks may go to, with its secret sealed.
    pub async fn callback(
        &self,
        tenant: TenantId,
        url: &str,
        secret: Option<&str>,
    ) -> Result<Callback> {
        check_url(&self.config().webhooks, url).map_err(|error| error.at("callback"))?;
        let Some(secret) = secret else {
            return Ok(Callback { url: url.to_owned(), secret: None });
        };
        check_text("callback secret", secret, MAX_TEXT)?;
        let sealed = self.keys().seal_small(Some(tenant), PURPOSE, secret.as_bytes()).await?;
        Ok(Callback { url: url.to_owned(), secret: Some(sealed) })
    }

    /// Sends what was queued, now rather than in a second. Called after the transaction.
    pub fn wake_callbacks(&self) {
        self.told().notify_one();
    }

    /// The most callbacks that wait in one project.
    #[must_use]
    pub fn max_callbacks(&self) -> usize {
        self.config().webhooks.max_waiting
    }
}

/// Queues a callback in the transaction of what it tells of. Beyond the limit nobody is told: a
/// receiver that does not answer must not fill the database.
pub fn call_back(
    tx: &mut Tx<'_>,
    (tenant, project): (TenantId, ProjectId),
    callback: Callback,
    payload: &Value,
    most: usize,
) -> Result<()> {
    tx.lock(&format!("callbacks/{project}"))?;
    if store::count_callbacks(tx, project)? >= most {
        tracing::warn!(%project, "too many callbacks of this project wait; one is not made");
        return Ok(());
    }
    let payload = serde_json::to_string(payload).map_err(Error::internal)?;
    store::queue_callback(tx, (tenant, project), (&callback.url, callback.secret), &payload)
}
