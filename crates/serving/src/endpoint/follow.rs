//! Endpoints follow the aliases they were deployed with.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Ctx, EndpointId, Error, Name, ProjectId, Result};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::worker::Worker;

use super::endpoint::{Endpoint, Running};
use super::service::Act;
use super::store;
use crate::{ENDPOINT_WRITE, Serving};

const NAME: &str = "endpoint-follower";
/// How long after an alias moved an endpoint begins to load what it points at.
const EVERY: Duration = Duration::from_secs(1);

/// How long a version that could not be served is not tried again.
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// A variant of an endpoint.
type Place = (EndpointId, Name);

/// Which versions were held back lately, so that one that fails is not loaded every second.
#[derive(Debug, Default)]
pub(crate) struct HeldBack(Mutex<HashMap<Place, (i64, Instant)>>);

impl HeldBack {
    fn is_recent(&self, place: &Place, version: i64) -> bool {
        let tried = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tried.get(place).is_some_and(|(of, at)| *of == version && at.elapsed() < TRY_AGAIN)
    }

    fn note(&self, place: Place, version: i64) {
        let mut tried = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tried.retain(|_, (_, at)| at.elapsed() < TRY_AGAIN);
        tried.insert(place, (version, Instant::now()));
    }
}

pub(crate) fn follower(serving: &Serving) -> Worker {
    let serving = serving.clone();
    Worker::new(NAME, EVERY, move || {
        let serving = serving.clone();
        async move { serving.follow_aliases().await }
    })
}

impl Serving {
    /// Brings every endpoint to where its aliases point. One that fails does not hold up others.
    pub async fn follow_aliases(&self) -> Result<()> {
        for (project, endpoint) in self.db().read(store::following).await? {
            let name = endpoint.name.clone();
            if let Err(error) = self.follow_one(project, endpoint).await {
                tracing::warn!(endpoint = %name, error = error.chain(), "cannot follow its alias");
            }
        }
        Ok(())
    }

    async fn follow_one(&self, project: ProjectId, endpoint: Endpoint) -> Result<()> {
        let ctx = Ctx::system(NAME);
        let project = self.registry().tenancy().project_by_id(&ctx, project).await?;
        let mut running = Vec::with_capacity(endpoint.running.len());
        for now in &endpoint.running {
            running.push(self.followed(&ctx, &project, &endpoint, now).await?);
        }
        if running == endpoint.running {
            return Ok(());
        }
        ctx.authorize(&ENDPOINT_WRITE, &endpoint.resource(&project)).await?;
        let held_back = running.iter().any(|running| running.held_back.is_some());
        let kind = if held_back { "endpoint.held-back" } else { "endpoint.followed" };
        let revision = endpoint.revision;
        let change = move |_: &mut Tx<'_>, old: Option<Endpoint>, act: &mut Act| {
            let old = old.filter(|old| old.revision == revision);
            let old = old.ok_or_else(|| Error::not_found("endpoint", &act.name))?;
            let mut running = running;
            // Shares may have been decided on while this was loading.
            for running in &mut running {
                let now = old.running.iter().find(|now| now.variant == running.variant);
                running.share = now.and_then(|now| now.share);
            }
            Ok(Endpoint { running, updated_at: act.now, updated_by: act.by().to_owned(), ..old })
        };
        self.change_endpoint(&ctx, &project, endpoint.name, kind, None, change).await.map(drop)
    }

    /// What a variant runs from now on: what its alias points at, if that can be served.
    async fn followed(
        &self,
        ctx: &Ctx,
        project: &Project,
        endpoint: &Endpoint,
        now: &Running,
    ) -> Result<Running> {
        let variant = endpoint.variant(&now.variant).filter(|variant| variant.alias.is_some());
        let Some(variant) = variant else { return Ok(now.clone()) };
        let stays = |why: Option<String>| Running { held_back: why, ..now.clone() };
        let meant = match self.meant(ctx, project, variant).await {
            Ok(meant) => meant,
            Err(error) => return Ok(stays(Some(error.message().to_owned()))),
        };
        if (meant.model(), meant.number) == (now.model, now.version) {
            return Ok(stays(None));
        }
        let place = (endpoint.id, now.variant.clone());
        if now.held_back.is_some() && self.held_back().is_recent(&place, meant.number) {
            return Ok(now.clone());
        }
        let spec = &endpoint.spec;
        match self.proven(ctx, project, spec, variant, self.db().now()).await {
            Ok(running) => Ok(running),
            Err(error) => {
                self.held_back().note(place, meant.number);
                let why = format!("version {}: {}", meant.number, error.message());
                Ok(stays(Some(why)))
            }
        }
    }
}
