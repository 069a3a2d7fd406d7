//! The verbs on endpoints.

use falaj_base::{
    Action, Ctx, EndpointId, Error, Name, Page, PageQuery, Resource, Result, Timestamp, code,
};
use falaj_governance::epoch::Epoch;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::endpoint::{Endpoint, Running, resource};
use super::spec::Spec;
use super::store;
use super::users::hold_new;
use crate::{ENDPOINT_DELETE, ENDPOINT_READ, ENDPOINT_WRITE, Serving, rollout};

/// How many revisions are shown.
const SHOWN_REVISIONS: usize = 100;

/// What was asked for at some time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[allow(clippy::struct_field_names, reason = "what callers know it by")]
pub struct Revision {
    pub revision: i64,
    pub spec: Spec,
    pub at: Timestamp,
    pub by: String,
}

impl Serving {
    /// Makes an endpoint serve this, or makes the endpoint. The reply comes when everything asked
    /// for is loaded and proven; until then it answers as before.
    pub async fn deploy(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: Name,
        spec: Spec,
        expected: Option<i64>,
    ) -> Result<Endpoint> {
        let resource = resource(project, name.as_str(), false);
        ctx.authorize(&ENDPOINT_WRITE, &resource).await?;
        spec.check()?;
        let running = self.all_proven(ctx, project, &spec).await?;
        let most = self.config().max_endpoints;
        let change = move |_: &mut Tx<'_>, old: Option<Endpoint>, act: &mut Act| {
            let last = old.as_ref().map_or(0, |old| old.revision);
            if expected.is_some_and(|expected| expected != last) {
                let text = format!("the endpoint was changed meanwhile: it is at revision {last}");
                return Err(Error::new(&code::CHANGED, text).at("revision"));
            }
            let (made_at, made_by) = match &old {
                Some(old) => (old.created_at, old.created_by.clone()),
                None => (act.now, act.by().to_owned()),
            };
            Ok(Endpoint {
                id: old.map_or_else(EndpointId::new, |old| old.id),
                name: act.name.clone(),
                revision: last + 1,
                spec,
                running,
                paused: false,
                created_at: made_at,
                created_by: made_by,
                updated_at: act.now,
                updated_by: act.by().to_owned(),
            })
        };
        self.change_endpoint(ctx, project, name, "endpoint.deployed", Some(most), change).await
    }

    async fn all_proven(&self, ctx: &Ctx, project: &Project, spec: &Spec) -> Result<Vec<Running>> {
        let now = self.db().now();
        let mut running = Vec::with_capacity(spec.variants.len());
        for variant in &spec.variants {
            running.push(self.proven(ctx, project, spec, variant, now).await?);
        }
        Ok(running)
    }

    /// Goes back to what was asked for before the last change, or at a certain revision.
    pub async fn roll_endpoint_back(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: Name,
        to: Option<i64>,
    ) -> Result<Endpoint> {
        let endpoint = self.seen(ctx, project, &name, &ENDPOINT_WRITE).await?;
        let before = to.map_or(endpoint.revision, |revision| revision.saturating_add(1));
        let id = endpoint.id;
        let kept = self.db().read(move |tx| store::revisions(tx, id, before, 1)).await?.pop();
        let kept =
            kept.filter(|kept| to.is_none_or(|to| to == kept.revision)).ok_or_else(|| {
                let asked = to.map_or_else(|| "before the first".to_owned(), |to| to.to_string());
                Error::invalid("revision", asked, format!("one before {}", endpoint.revision))
            })?;
        self.deploy(ctx, project, name, kept.spec, Some(endpoint.revision)).await
    }

    /// Stops or goes on answering.
    pub async fn pause_endpoint(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: Name,
        paused: bool,
    ) -> Result<Endpoint> {
        let endpoint = self.seen(ctx, project, &name, &ENDPOINT_WRITE).await?;
        if !paused {
            self.warm(project, &endpoint).await?;
        }
        let change = move |_: &mut Tx<'_>, old: Option<Endpoint>, act: &mut Act| {
            let old = old.ok_or_else(|| Error::not_found("endpoint", &act.name))?;
            Ok(Endpoint { paused, updated_at: act.now, updated_by: act.by().to_owned(), ..old })
        };
        let kind = if paused { "endpoint.paused" } else { "endpoint.resumed" };
        let endpoint = self.change_endpoint(ctx, project, name, kind, None, change).await?;
        if paused {
            self.unload(project, &endpoint).await?;
        }
        Ok(endpoint)
    }

    pub async fn delete_endpoint(&self, ctx: &Ctx, project: &Project, name: Name) -> Result<()> {
        let endpoint = self.seen(ctx, project, &name, &ENDPOINT_DELETE).await?;
        let (id, resource) = (project.id, endpoint.resource(project));
        let act = ctx.clone();
        let moved = self
            .db()
            .write(move |tx| {
                tx.lock(&store::lock(id, &name))?;
                let old = store::find(tx, id, name.as_str())?;
                let old = old.ok_or_else(|| Error::not_found("endpoint", &name))?;
                store::delete(tx, old.id)?;
                rollout::store::delete(tx, old.id)?;
                let moved = Epoch::bump_row(tx, store::EPOCH)?;
                let change = Change::new(&ENDPOINT_DELETE, &resource)
                    .event("endpoint.deleted", &old.shown())
                    .before(&old.shown());
                tx.record(&act, change)?;
                Ok(moved)
            })
            .await?;
        self.epoch().publish(moved);
        self.unload(project, &endpoint).await
    }

    pub async fn endpoint(&self, ctx: &Ctx, project: &Project, name: &Name) -> Result<Endpoint> {
        self.seen(ctx, project, name, &ENDPOINT_READ).await
    }

    /// The endpoints of a project that the caller may see, by name.
    pub async fn endpoints(
        &self,
        ctx: &Ctx,
        project: &Project,
        query: PageQuery,
    ) -> Result<Page<Endpoint>> {
        ctx.authorize(&ENDPOINT_READ, &project.resource()).await?;
        let (id, limit, after) = (project.id, query.limit()?, query.after().to_owned());
        let found = self.db().read(move |tx| store::list(tx, id, &after, limit + 1)).await?;
        let mut page = Page::cut(found, limit, |endpoint| endpoint.name.to_string());
        page.items.retain(|endpoint| ctx.allows(&ENDPOINT_READ, &endpoint.resource(project)));
        Ok(page)
    }

    /// What was asked for, newest first.
    pub async fn endpoint_revisions(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
    ) -> Result<Vec<Revision>> {
        let id = self.seen(ctx, project, name, &ENDPOINT_READ).await?.id;
        let read = move |tx: &mut Tx<'_>| store::revisions(tx, id, i64::MAX, SHOWN_REVISIONS);
        let kept = self.db().read(read).await?.into_iter();
        Ok(kept
            .map(|kept| Revision {
                revision: kept.revision,
                spec: kept.spec,
                at: kept.at,
                by: kept.by,
            })
            .collect())
    }

    /// An endpoint that is there and that the caller may do this to.
    pub(crate) async fn seen(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        action: &'static Action,
    ) -> Result<Endpoint> {
        let (id, wanted) = (project.id, name.to_string());
        let found = self.db().read(move |tx| store::find(tx, id, &wanted)).await?;
        let resource = resource(project, name.as_str(), found.is_none());
        ctx.authorize(action, &resource).await?;
        found.ok_or_else(|| Error::not_found("endpoint", name))
    }

    /// One change of one endpoint: alone at it, put on record, told to all servers. Whoever calls
    /// has authorised it.
    pub(crate) async fn change_endpoint(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: Name,
        kind: &'static str,
        most: Option<usize>,
        change: impl FnOnce(&mut Tx<'_>, Option<Endpoint>, &mut Act) -> Result<Endpoint>
        + Send
        + 'static,
    ) -> Result<Endpoint> {
        let resource = resource(project, name.as_str(), false);
        let id = project.id;
        let ctx = ctx.clone();
        let (endpoint, moved) = self
            .db()
            .write(move |tx| {
                tx.lock(&store::lock(id, &name))?;
                let old = store::find(tx, id, name.as_str())?;
                let mut act = Act { now: tx.now(), ctx, name, resource, told: None };
                if let (None, Some(most)) = (&old, most) {
                    tx.lock(&format!("endpoints/{id}"))?;
                    if store::count(tx, id)? >= most {
                        let text =
                            format!("the project has {most} endpoints (`serving.max_endpoints`)");
                        return Err(Error::new(&code::CONFLICT, text));
                    }
                }
                let (before, asked) =
                    (old.as_ref().map(Endpoint::shown), old.as_ref().map(|old| old.revision));
                let round = old.as_ref().map(rollout::round_of);
                let known = old.as_ref().map(|old| old.running.clone()).unwrap_or_default();
                let mut endpoint = change(tx, old, &mut act)?;
                hold_new(tx, &known, &endpoint.running)?;
                rollout::begin(tx, id, round, &mut endpoint)?;
                store::put(tx, id, &endpoint)?;
                if asked != Some(endpoint.revision) {
                    store::put_revision(tx, &endpoint)?;
                }
                let moved = Epoch::bump_row(tx, store::EPOCH)?;
                let shown = endpoint.shown();
                let mut told = shown.clone();
                let (kind, why) = act.told.take().unwrap_or((kind, Value::Null));
                if !why.is_null() {
                    told["why"] = why;
                }
                let change = Change::new(&ENDPOINT_WRITE, &act.resource)
                    .event(kind, &told)
                    .before(&before)
                    .after(&shown)
                    .reply(200, &endpoint);
                tx.record(&act.ctx, change)?;
                Ok((endpoint, moved))
            })
            .await?;
        self.epoch().publish(moved);
        Ok(endpoint)
    }
}

/// Who changes an endpoint, and when.
pub(crate) struct Act {
    pub(crate) ctx: Ctx,
    pub(crate) now: Timestamp,
    pub(crate) name: Name,
    resource: Resource,
    told: Option<(&'static str, Value)>,
}

impl Act {
    /// The event of the change, and why it was made.
    pub(crate) fn tell(&mut self, event: &'static str, why: Value) {
        self.told = Some((event, why));
    }

    pub(crate) fn by(&self) -> &str {
        &self.ctx.principal.name
    }
}
