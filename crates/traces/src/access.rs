//! Every trace that a request names passes through here: found, of this project, and allowed.

use std::collections::HashSet;

use falaj_base::{Action, Error, Resource, Result, code};
use falaj_mlflow::{Call, Place};
use falaj_tracking::ExperimentId;
use falaj_tracking::access::{allowed, resource};
use uuid::Uuid;

use crate::Traces;
use crate::trace::TraceId;
use crate::trace::store::{self, Address};

/// Where a trace lives, seen and allowed.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) no: Uuid,
    pub(crate) id: TraceId,
    pub(crate) experiment: i64,
    pub(crate) resource: Resource,
}

impl Home {
    fn new(place: &Place, address: Address) -> Self {
        Self {
            resource: resource(place, address.experiment_id, false).shown_as(&address.id),
            no: address.no,
            id: address.id,
            experiment: address.experiment,
        }
    }
}

impl Traces {
    /// The home of a trace, if the caller may do `action` there. Not there and not yours read
    /// alike.
    pub(crate) async fn home(
        &self,
        call: &Call,
        trace: &str,
        action: &'static Action,
    ) -> Result<Home> {
        let not_there = || no_trace(trace);
        let found = match TraceId::parse(trace) {
            Some(id) => self.addresses(call, vec![id]).await?.pop(),
            None => None,
        };
        let Some(address) = found else {
            let name: String = trace.chars().take(64).collect();
            let absent = Resource::absent("trace", name, call.place.scope());
            allowed(&call.ctx, action, &absent, not_there).await?;
            return Err(not_there());
        };
        let home = Home::new(&call.place, address);
        allowed(&call.ctx, action, &home.resource, not_there).await?;
        Ok(home)
    }

    /// Those of the traces that are there and that the caller may do `action` to; the others are
    /// passed over, as in any list.
    pub(crate) async fn homes(
        &self,
        call: &Call,
        traces: &[String],
        action: &'static Action,
    ) -> Result<Vec<Home>> {
        let ids: HashSet<TraceId> = traces.iter().filter_map(|id| TraceId::parse(id)).collect();
        let found = self.addresses(call, ids.into_iter().collect()).await?;
        call.ctx.filtered(action);
        let homes = found.into_iter().map(|address| Home::new(&call.place, address));
        Ok(homes.filter(|home| call.ctx.allows(action, &home.resource)).collect())
    }

    pub(crate) async fn addresses(&self, call: &Call, ids: Vec<TraceId>) -> Result<Vec<Address>> {
        let project = call.place.id;
        self.db().read(move |tx| store::addresses(tx, project, &ids)).await
    }

    /// The experiments of these ids that the caller may do `action` in, each once: their numbers
    /// in the database. Those that are not there, or not the caller's, are passed over.
    pub(crate) async fn experiments(
        &self,
        call: &Call,
        ids: &[String],
        action: &'static Action,
    ) -> Result<Vec<i64>> {
        let ids: HashSet<ExperimentId> = ids.iter().map(|id| id.parse()).collect::<Result<_>>()?;
        call.ctx.filtered(action);
        let readable =
            |id: &ExperimentId| call.ctx.allows(action, &resource(&call.place, *id, false));
        let ids: Vec<ExperimentId> = ids.into_iter().filter(readable).collect();
        self.tracking().experiment_numbers(call, ids).await
    }
}

pub(crate) fn no_trace(id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    Error::new(&code::NOT_FOUND, format!("Trace with ID '{id}' not found."))
}
