//! Taking requests, and keeping them while they run.

use std::time::{Duration, Instant};

use falaj_base::Result;
use falaj_store::db::Tx;
use uuid::Uuid;

use super::store::{self, Claimed};
use crate::Serving;

impl Serving {
    /// Takes the next request, if there is one and a place for it.
    pub(super) async fn claim_next(&self) -> Result<Option<Claimed>> {
        let Some((after, without)) = self.later().places().wanted() else { return Ok(None) };
        // A look costs less than a transaction that writes, and mostly finds nothing.
        let look = move |tx: &mut Tx<'_>| store::next_endpoint(tx, after, without);
        if self.db().read(look).await?.is_none() {
            return Ok(None);
        }
        let (holder, length) = (self.later().holder().to_owned(), self.takeover());
        let take = move |tx: &mut Tx<'_>| {
            // One server at a time, so that no request is taken twice.
            tx.lock(store::CLAIMING)?;
            match store::next_endpoint(tx, after, without)? {
                Some(endpoint) => store::claim(tx, endpoint, &holder, length),
                None => Ok(None),
            }
        };
        let claimed = self.db().write(take).await?;
        if let Some(claimed) = &claimed {
            self.later().places().enter(claimed.of.endpoint);
        }
        Ok(claimed)
    }

    /// Keeps a claim; returns when it was lost: the request was cancelled, or the database away for
    /// so long that somebody else may have taken it.
    pub(super) async fn keep_claim(&self, id: Uuid, claim: Uuid) {
        let length = self.takeover();
        let mut last = Instant::now();
        while last.elapsed() < length {
            tokio::time::sleep(length / 4).await;
            let asked = Instant::now();
            match self.db().write(move |tx| store::renew(tx, id, claim, length)).await {
                Ok(true) => last = asked,
                Ok(false) => return,
                Err(error) => {
                    let error = error.chain();
                    tracing::warn!(request = %id, error, "a claim could not be renewed");
                }
            }
        }
    }

    fn takeover(&self) -> Duration {
        self.config().later.takeover.get().max(Duration::from_millis(200))
    }
}
