//! A project of the platform as a desk.

use std::sync::Arc;

use falaj_base::{Name, Result};
use falaj_mlflow::Call;
use falaj_oip::Limits;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::desk::{Desk, Purpose};
use crate::endpoint::store;
use crate::live::Served;
use crate::runtime::Fleet;
use crate::{ENDPOINT_PREDICT, ENDPOINT_READ, Serving};

/// One caller at the endpoints of one project.
pub(super) struct Project<'a> {
    pub(super) serving: &'a Serving,
    pub(super) call: &'a Call,
}

impl Project<'_> {
    async fn all_served(&self) -> Result<Vec<Arc<Served>>> {
        let Call { ctx, place, .. } = self.call;
        ctx.authorize(&ENDPOINT_READ, &place.resource()).await?;
        let (id, most) = (place.id, self.serving.config().max_endpoints);
        let found = self.serving.db().read(move |tx| store::list(tx, id, "", most)).await?;
        let visible =
            found.iter().filter(|endpoint| ctx.allows(&ENDPOINT_READ, &endpoint.resource(place)));
        visible.map(|endpoint| Served::new(place, endpoint).map(Arc::new)).collect()
    }

    async fn pause(&self, name: &str, paused: bool) -> Result<()> {
        let Call { ctx, place, .. } = self.call;
        let name = Name::new(name)?;
        self.serving.pause_endpoint(ctx, place, name, paused).await.map(drop)
    }
}

impl Desk for Project<'_> {
    fn served<'a>(&'a self, name: &'a str, purpose: Purpose) -> BoxFuture<'a, Result<Arc<Served>>> {
        async move {
            let Call { ctx, place, .. } = self.call;
            let action = match purpose {
                Purpose::Look => &ENDPOINT_READ,
                Purpose::Predict => &ENDPOINT_PREDICT,
            };
            let served = self.serving.served(ctx, place, name, action).await?;
            if purpose == Purpose::Predict {
                self.serving.tally().count(ctx, &served.resource, self.serving.db().now());
            }
            Ok(served)
        }
        .boxed()
    }

    fn all(&self) -> BoxFuture<'_, Result<Vec<Arc<Served>>>> {
        self.all_served().boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.pause(name, false).boxed()
    }

    fn unload<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.pause(name, true).boxed()
    }

    fn fleet(&self) -> &Fleet {
        self.serving.fleet()
    }

    fn limits(&self) -> &Limits {
        self.serving.tensor_limits()
    }
}
