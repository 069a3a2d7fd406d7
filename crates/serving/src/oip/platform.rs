//! A project of the platform as a desk.

use std::sync::Arc;

use ::http::request::Parts;
use axum::body::Bytes;
use axum::extract::Request;
use falaj_base::{Ctx, Error, Name, Result, Timestamp};
use falaj_mlflow::{Call, Places};
use falaj_oip::Limits;
use falaj_web::{Endpoint, Plain, Routes};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::desk::{Desk, Opened, Opening, Purpose};
use super::table::{Kind, rows};
use super::{http, rest};
use crate::endpoint::store;
use crate::live::Served;
use crate::predictions::Log;
use crate::runtime::Fleet;
use crate::{ENDPOINT_PREDICT, ENDPOINT_READ, Serving};

/// Every call of the protocol, about the project that a request names.
pub(crate) fn routes(serving: &Arc<Serving>, places: &Places) -> Vec<Endpoint> {
    let routes = rows(&opening(serving, places)).into_iter().fold(
        Routes::new(serving.clone()),
        |routes, row| match row.kind {
            Kind::Public(doc) => routes.public(row.method, row.path, doc, row.handler),
            Kind::Rest(action, doc) => routes.raw(row.method, row.path, action, doc, row.handler),
            Kind::Grpc(action, summary) => routes.grpc(row.path, action, summary, row.handler),
        },
    );
    let mut endpoints = routes.into_endpoints();
    let places = Arc::new(places.clone());
    for endpoint in &mut endpoints {
        // Tensors come with no other call.
        endpoint.large = endpoint.action.is_some_and(|it| it.name == ENDPOINT_PREDICT.name);
        if endpoint.path == http::INFER {
            let (serving, places) = (serving.clone(), places.clone());
            endpoint.directly(move |ctx, parts, body| {
                infer(serving.clone(), places.clone(), ctx, parts, body)
            });
        }
    }
    endpoints
}

/// Answers `…/infer` for a caller who is known, with the body in memory.
async fn infer(
    serving: Arc<Serving>,
    places: Arc<Places>,
    ctx: Ctx,
    parts: Arc<Parts>,
    body: Bytes,
) -> Result<Plain> {
    let place = places.of(&ctx, &parts).await?;
    let project = Project { serving, call: Call { ctx, place, connection: None } };
    rest::infer(&project, http::asked(&parts)?, &parts.headers, body).await
}

fn opening(serving: &Arc<Serving>, places: &Places) -> Opening {
    let (serving, places) = (serving.clone(), Arc::new(places.clone()));
    Arc::new(move |request| open(serving.clone(), places.clone(), request).boxed())
}

async fn open(serving: Arc<Serving>, places: Arc<Places>, request: Request) -> Opened {
    let (parts, body) = request.into_parts();
    let ctx = parts.extensions.get::<Ctx>().cloned();
    let ctx = ctx.ok_or_else(|| Error::internal("the request has no context"))?;
    let place = places.of(&ctx, &parts).await?;
    let call = Call { ctx, place, connection: None };
    Ok((Arc::new(Project { serving, call }), Request::from_parts(parts, body)))
}

/// One caller at the endpoints of one project.
struct Project {
    serving: Arc<Serving>,
    call: Call,
}

impl Project {
    async fn found(&self, name: &str, purpose: Purpose) -> Result<Arc<Served>> {
        let Call { ctx, place, .. } = &self.call;
        let action = match purpose {
            Purpose::Look => &ENDPOINT_READ,
            Purpose::Predict => &ENDPOINT_PREDICT,
        };
        let served = self.serving.served(ctx, place, name, action).await?;
        if purpose == Purpose::Predict {
            if let Some((endpoint, rate)) = &served.rate {
                self.serving.rates().take(ctx, *endpoint, rate)?;
            }
            self.serving.tally().count(ctx, &served.resource, self.serving.db().now());
        }
        Ok(served)
    }

    async fn all_served(&self) -> Result<Vec<Arc<Served>>> {
        self.greet().await?;
        let Call { ctx, place, .. } = &self.call;
        let (id, most) = (place.id, self.serving.config().max_endpoints);
        let found = self.serving.db().read(move |tx| store::list(tx, id, "", most)).await?;
        let visible =
            found.iter().filter(|endpoint| ctx.allows(&ENDPOINT_READ, &endpoint.resource(place)));
        visible.map(|endpoint| Served::new(place, endpoint, None).map(Arc::new)).collect()
    }

    async fn pause(&self, name: &str, paused: bool) -> Result<()> {
        let Call { ctx, place, .. } = &self.call;
        // A name that nothing can have is that of nothing.
        let name = Name::new(name).map_err(|_| Error::not_found("endpoint", name))?;
        self.serving.pause_endpoint(ctx, place, name, paused).await.map(drop)
    }
}

impl Desk for Project {
    fn greet(&self) -> BoxFuture<'_, Result<()>> {
        let Call { ctx, place, .. } = &self.call;
        async move { ctx.authorize(&ENDPOINT_READ, &place.resource()).await }.boxed()
    }

    fn may_ask(&self) -> bool {
        self.call.ctx.has_authorized(&ENDPOINT_PREDICT)
    }

    fn served<'a>(&'a self, name: &'a str, purpose: Purpose) -> BoxFuture<'a, Result<Arc<Served>>> {
        self.found(name, purpose).boxed()
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

    fn log(&self) -> Option<(&Log, Timestamp)> {
        Some((self.serving.predictions().log(), self.serving.db().now()))
    }
}
