//! How requests end: written down, told and called back in one transaction.

use std::time::Duration;

use falaj_base::{Ctx, Error, Resource, Result, Timestamp};
use falaj_oip::Written;
use falaj_registry::webhook::call_back;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Staged};
use falaj_store::record::Change;
use futures::stream;
use serde_json::{Value, json};

use super::request::{Row, State, Why};
use super::run::NAME;
use super::store::{self, Claimed, End, Of};
use super::work::Count;
use crate::endpoint::resource;
use crate::{ENDPOINT_PREDICT, Serving};

/// What it takes to put the end of a request on record.
#[derive(Clone)]
pub(super) struct Clerk {
    pub(super) ctx: Ctx,
    pub(super) resource: Resource,
    /// The names of the tenant and the project, for the address in callbacks.
    pub(super) place: (String, String),
    pub(super) keep: Duration,
    pub(super) max_callbacks: usize,
}

impl Clerk {
    /// Ends a request that is open and that the caller holds.
    pub(super) fn end(
        &self,
        tx: &mut Tx<'_>,
        of: Of,
        row: &mut Row,
        (state, why): (State, Option<&Why>),
        result: Option<(&Staged, Option<usize>)>,
    ) -> Result<()> {
        let expires_at = tx.now() + self.keep;
        let callback = row.callback.take();
        store::end(tx, row, &End { state, why, result, expires_at })?;
        let kind = match state {
            State::Done => "prediction.finished",
            State::Cancelled => "prediction.cancelled",
            _ => "prediction.failed",
        };
        if let Some(callback) = callback.filter(|_| state != State::Cancelled) {
            let told = self.cloud_event(row, kind, tx.now());
            call_back(tx, (of.tenant, of.project), callback, &told, self.max_callbacks)?;
        }
        let change = Change::new(&ENDPOINT_PREDICT, &self.resource)
            .event(kind, &row.shown.told())
            .detail("request", row.shown.id)
            .detail("state", state.text());
        tx.record(&self.ctx, change)
    }

    /// What whoever waits is told: that it is there and where, not what it is.
    fn cloud_event(&self, row: &Row, kind: &str, now: Timestamp) -> Value {
        let (tenant, project) = &self.place;
        let endpoint = &row.shown.endpoint;
        let source = format!("/v1/tenants/{tenant}/projects/{project}/endpoints/{endpoint}");
        let id = row.shown.id.to_string();
        json!({
            "specversion": "1.0",
            "id": format!("{id}-{}", row.shown.state.text()),
            "source": source,
            "type": format!("falaj.{kind}"),
            "time": now,
            "datacontenttype": "application/json",
            "data": { "id": id, "state": row.shown.state, "url": format!("{source}/requests/{id}") },
        })
    }
}

impl Serving {
    /// Whoever writes down the ends of requests to an endpoint that a worker found.
    pub(super) async fn clerk(&self, of: Of, endpoint: &str) -> Result<Clerk> {
        let ctx = Ctx::system(NAME);
        let project = self.registry().tenancy().project_by_id(&ctx, of.project).await?;
        let resource = resource(&project, endpoint, false);
        ctx.authorize(&ENDPOINT_PREDICT, &resource).await?;
        Ok(Clerk {
            ctx,
            resource,
            place: (project.tenant.to_string(), project.name.to_string()),
            keep: self.config().later.keep.get(),
            max_callbacks: self.registry().max_callbacks(),
        })
    }

    /// Puts a result into the object store, to be attached.
    pub(super) async fn keep_result(&self, claimed: &Claimed, written: &Written) -> Result<Staged> {
        let ctx = Ctx::system(NAME);
        let project = self.registry().tenancy().project_by_id(&ctx, claimed.of.project).await?;
        let content = stream::iter([Ok(written.body.clone())]);
        let expected = Expected { size: Some(written.body.len() as u64), sha256: None };
        let objects = self.registry().tracking().objects();
        objects.upload(claimed.of.tenant, &project.zone, content, expected).await
    }

    pub(super) async fn settle_done(
        &self,
        claimed: Claimed,
        staged: Staged,
        header: Option<usize>,
    ) -> Result<()> {
        let blob = staged.blob;
        let settled = self.settle(claimed, State::Done, None, Some((staged, header))).await;
        // Also after a failure: if it was attached after all, nothing comes of this.
        if !matches!(settled, Ok(true)) {
            self.registry().tracking().objects().discard(blob).await;
        }
        if settled? {
            self.later().count(Count::Done);
        }
        Ok(())
    }

    pub(super) async fn settle_failed(&self, claimed: Claimed, error: &Error) -> Result<()> {
        let why = Why::from(error);
        if self.settle(claimed, State::Failed, Some(why), None).await? {
            self.later().count(Count::Failed);
        }
        Ok(())
    }

    /// Ends a request if the claim is still held; tells whether it was.
    async fn settle(
        &self,
        claimed: Claimed,
        state: State,
        why: Option<Why>,
        result: Option<(Staged, Option<usize>)>,
    ) -> Result<bool> {
        let clerk = self.clerk(claimed.of, &claimed.row.shown.endpoint).await?;
        let Claimed { of, mut row, claim } = claimed;
        let settle = move |tx: &mut Tx<'_>| {
            let id = row.shown.id;
            tx.lock(&store::ending(id))?;
            if !store::holds(tx, id, claim)? {
                return Ok(false);
            }
            let result = result.as_ref().map(|(staged, header)| (staged, *header));
            clerk.end(tx, of, &mut row, (state, why.as_ref()), result)?;
            Ok(true)
        };
        let settled = self.db().write(settle).await?;
        self.registry().wake_callbacks();
        Ok(settled)
    }

    pub(super) async fn put_back(
        &self,
        claimed: Claimed,
        error: &Error,
        pause: Duration,
    ) -> Result<()> {
        let (id, claim, why) = (claimed.row.shown.id, claimed.claim, Why::from(error));
        let request = id;
        tracing::info!(%request, error = error.chain(), ?pause, "will be tried again");
        self.db().write(move |tx| store::put_back(tx, id, claim, &why, pause)).await.map(drop)
    }
}
