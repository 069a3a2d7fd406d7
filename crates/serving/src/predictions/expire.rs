//! Files and outcomes that were kept long enough, and those of endpoints that are gone.

use falaj_base::{Ctx, EndpointId, ProjectId, Resource, Result, Scope, TenantId, Timestamp};
use falaj_store::db::Tx;
use falaj_store::objects::Objects;
use falaj_store::record::Change;
use serde_json::json;

use super::actions::PREDICTION_KEEP;
use super::{Predictions, store};

const NAME: &str = "prediction-expiry";

/// How much one transaction deletes.
const FILES_AT_ONCE: usize = 100;
const OUTCOMES_AT_ONCE: usize = 5000;

/// What one run deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    pub files: u64,
    pub rows: u64,
}

impl Predictions {
    /// Deletes what was kept long enough: as long as an endpoint says, or else as the configuration
    /// does. What an endpoint that is gone left behind goes at once.
    pub async fn expire(&self) -> Result<Expired> {
        let (now, usual) = (self.db().now(), self.config().keep.get());
        let own = self.db().read(store::keeps).await?;
        let keep = |endpoint| own.get(&endpoint).copied().unwrap_or(usual);
        let ever = Timestamp::from_micros(i64::MAX);
        let mut expired = Expired::default();
        for (endpoint, tenant, project) in self.db().read(store::endpoints).await? {
            let lives = self.db().read(move |tx| store::lives(tx, endpoint)).await?;
            let before = if lives { now - keep(endpoint) } else { ever };
            loop {
                let some = self.expire_some(endpoint, (tenant, project), before).await?;
                expired.files += some.files;
                expired.rows += some.rows;
                if some.files < FILES_AT_ONCE as u64 {
                    break;
                }
            }
        }
        for endpoint in self.db().read(store::with_outcomes).await? {
            self.expire_outcomes(endpoint, now - keep(endpoint)).await?;
        }
        for endpoint in self.db().read(store::outcomes_of_nobody).await? {
            self.expire_outcomes(endpoint, ever).await?;
        }
        Ok(expired)
    }

    async fn expire_some(
        &self,
        endpoint: EndpointId,
        (tenant, project): (TenantId, ProjectId),
        before: Timestamp,
    ) -> Result<Expired> {
        let ctx = Ctx::system(NAME);
        let resource = Resource::new("endpoint", endpoint, Scope::Project(tenant, project));
        ctx.authorize(&PREDICTION_KEEP, &resource).await?;
        let write = move |tx: &mut Tx<'_>| {
            let mut expired = Expired::default();
            for file in store::ended_before(tx, endpoint, before, FILES_AT_ONCE)? {
                // Another server may have been faster with this one.
                if store::delete(tx, file.id)? {
                    Objects::detach(tx, file.blob, store::CLAIM, &file.id.to_string())?;
                    expired.files += 1;
                    expired.rows += file.rows;
                }
            }
            if expired.files > 0 {
                let told = json!({ "files": expired.files, "rows": expired.rows });
                let change = Change::new(&PREDICTION_KEEP, &resource)
                    .event("predictions.expired", &told)
                    .detail("files", expired.files);
                tx.record(&ctx, change)?;
            }
            Ok(expired)
        };
        self.db().write(write).await
    }

    async fn expire_outcomes(&self, endpoint: EndpointId, before: Timestamp) -> Result<()> {
        let some =
            move |tx: &mut Tx<'_>| store::delete_outcomes(tx, endpoint, before, OUTCOMES_AT_ONCE);
        while self.db().write(some).await? {}
        Ok(())
    }
}
