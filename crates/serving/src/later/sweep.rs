//! Requests that waited too long, results that were kept long enough, and what endpoints that are
//! gone left behind.

use std::time::Duration;

use falaj_base::{Ctx, Error, Resource, Result, Scope, code};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use serde_json::json;

use super::request::{State, Why};
use super::store::{self, Of};
use super::work::Count;
use crate::{ENDPOINT_PREDICT, Serving};

const NAME: &str = "later-expiry";

const EVERY: Duration = Duration::from_secs(10);

/// How many requests one transaction ends or deletes.
const AT_ONCE: usize = 100;

pub(crate) fn sweeper(serving: &Serving) -> Worker {
    let serving = serving.clone();
    Worker::new(NAME, EVERY, move || {
        let serving = serving.clone();
        async move { serving.sweep_later().await }
    })
}

impl Serving {
    /// Ends what waited too long and deletes what was kept long enough.
    pub(crate) async fn sweep_later(&self) -> Result<()> {
        let mut failed = false;
        loop {
            let overdue = self.db().read(|tx| store::overdue(tx, AT_ONCE)).await?;
            let more = overdue.len() == AT_ONCE;
            for (of, row) in overdue {
                let (endpoint, id) = (&row.shown.endpoint, row.shown.id);
                // One that cannot be ended holds up no other.
                if let Err(error) = self.end_overdue(of, endpoint, id).await {
                    tracing::warn!(%id, error = error.chain(), "a request cannot be ended");
                    failed = true;
                }
            }
            if !more || failed {
                break;
            }
        }
        for of in self.db().read(store::deletable).await? {
            while self.delete_some(of).await? == AT_ONCE {}
        }
        Ok(())
    }

    async fn end_overdue(&self, of: Of, endpoint: &str, id: uuid::Uuid) -> Result<()> {
        let clerk = self.clerk(of, endpoint).await?;
        let end = move |tx: &mut Tx<'_>| {
            tx.lock(store::CLAIMING)?;
            tx.lock(&store::ending(id))?;
            let now = tx.now();
            let found = store::find(tx, of.endpoint, id)?;
            let found =
                found.filter(|row| row.shown.state.is_open() && row.shown.expires_at <= now);
            let Some(mut row) = found else { return Ok(false) };
            let last = row.shown.error.as_ref().map(|why| format!("; last: {}", why.message));
            let text = format!("it was not answered in time{}", last.unwrap_or_default());
            let why = Why::from(&Error::new(&code::DEADLINE_EXCEEDED, text));
            clerk.end(tx, of, &mut row, (State::Failed, Some(&why)), None)?;
            Ok(true)
        };
        if self.db().write(end).await? {
            self.later().count(Count::Failed);
            self.registry().wake_callbacks();
        }
        Ok(())
    }

    async fn delete_some(&self, of: Of) -> Result<usize> {
        let ctx = Ctx::system(NAME);
        let scope = Scope::Project(of.tenant, of.project);
        let resource = Resource::new("endpoint", of.endpoint, scope);
        ctx.authorize(&ENDPOINT_PREDICT, &resource).await?;
        let delete = move |tx: &mut Tx<'_>| {
            let mut deleted = 0;
            for id in store::to_delete(tx, of.endpoint, AT_ONCE)? {
                tx.lock(&store::ending(id))?;
                deleted += usize::from(store::delete(tx, id)?);
            }
            if deleted > 0 {
                let change = Change::new(&ENDPOINT_PREDICT, &resource)
                    .event("prediction.expired", &json!({ "requests": deleted }))
                    .detail("requests", deleted);
                tx.record(&ctx, change)?;
            }
            Ok(deleted)
        };
        self.db().write(delete).await
    }
}
