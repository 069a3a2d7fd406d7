//! The verbs on events and subscriptions.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Name, Resource, Result, Scope, code};
use falaj_governance::epoch::Epoch;
use falaj_governance::tenancy::Tenancy;
use falaj_store::db::Db;
use falaj_store::events::{
    Cursor, Event, EventLog, Filter, MAX_BATCH, Subscription, Subscriptions,
};
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use tokio::sync::Semaphore;

use super::{EVENT_READ, EventsConfig, SUBSCRIPTION_READ, SUBSCRIPTION_WRITE};

/// The longest prefix of a type to filter by.
const MAX_KIND: usize = 128;

/// How many batches are looked through for the last events that a caller may see.
const MAX_LOOKS: usize = 10;

/// The events of this platform, as callers may see them.
#[derive(Clone, Debug)]
pub struct Events {
    pub(super) log: EventLog,
    pub(super) epoch: Epoch,
    pub(super) streams: Arc<Semaphore>,
    db: Db,
    subscriptions: Subscriptions,
    tenancy: Tenancy,
    config: EventsConfig,
}

impl Events {
    #[must_use]
    pub fn new(db: Db, tenancy: Tenancy, epoch: Epoch, config: &EventsConfig) -> Self {
        Self {
            log: EventLog::new(db.clone()),
            epoch,
            streams: Arc::new(Semaphore::new(config.max_streams)),
            subscriptions: Subscriptions::new(db.clone()),
            db,
            tenancy,
            config: config.clone(),
        }
    }

    #[must_use]
    pub fn trimmer(&self) -> Worker {
        self.log.trimmer(self.config.retention.into())
    }

    /// Turns what a caller wants into a filter; a tenant it names must be one it may see.
    pub async fn filter(&self, ctx: &Ctx, tenant: Option<&Name>, kind: String) -> Result<Filter> {
        if kind.len() > MAX_KIND {
            let allowed = format!("the beginning of an event type, at most {MAX_KIND} characters");
            return Err(Error::invalid("type", kind, allowed));
        }
        let tenant = match tenant {
            Some(name) => Some(self.tenancy.tenant(ctx, name).await?.id),
            None => None,
        };
        Ok(Filter { tenant, kind })
    }

    /// Reads on from `after`. The second value is where to continue, past what was not shown too.
    pub async fn read(
        &self,
        ctx: &Ctx,
        after: Cursor,
        filter: Filter,
        limit: usize,
    ) -> Result<(Vec<Event>, Cursor)> {
        let events = self.log.read(after, filter, limit).await?;
        let next = events.last().map_or(after, |event| event.cursor);
        ctx.filtered(&EVENT_READ);
        let visible = events.into_iter().filter(|event| ctx.allows(&EVENT_READ, &resource(event)));
        Ok((visible.collect(), next))
    }

    /// The last events that the caller may see, oldest first, and where the log ended: reading on
    /// from there misses nothing. A caller who may see few of many gets fewer than there are.
    pub async fn last(
        &self,
        ctx: &Ctx,
        filter: Filter,
        limit: usize,
    ) -> Result<(Vec<Event>, Cursor)> {
        let end = self.log.end().await?;
        ctx.filtered(&EVENT_READ);
        let (mut found, mut at) = (Vec::new(), end);
        for _ in 0..MAX_LOOKS {
            let events = self.log.read_back(at, filter.clone(), MAX_BATCH).await?;
            let Some(oldest) = events.last().map(|event| event.cursor) else { break };
            let seen = events.len();
            found.extend(
                events.into_iter().filter(|event| ctx.allows(&EVENT_READ, &resource(event))),
            );
            if found.len() >= limit || seen < MAX_BATCH {
                break;
            }
            at = Cursor { seq: oldest.seq - 1, ..oldest };
        }
        found.truncate(limit);
        found.reverse();
        Ok((found, end))
    }

    /// Where the log ends: for readers that only want what is still to come.
    pub async fn end(&self) -> Result<Cursor> {
        self.log.end().await
    }

    pub async fn subscribe(
        &self,
        ctx: &Ctx,
        name: &Name,
        tenant: Option<&Name>,
        kind: String,
        from_start: bool,
    ) -> Result<Subscription> {
        let filter = self.filter(ctx, tenant, kind).await?;
        let key = key(&filter, name);
        let resource = place(&filter, name);
        ctx.authorize(&SUBSCRIPTION_WRITE, &resource).await?;
        let start = if from_start { Cursor::START } else { self.log.end().await? };
        let (ctx, most) = (ctx.clone(), self.config.max_subscriptions);
        self.db
            .write(move |tx| {
                tx.lock("subscriptions")?;
                if Subscriptions::find(tx, &key)?.is_none()
                    && Subscriptions::count(tx, filter.tenant)? >= most
                {
                    let text = format!("there are {most} subscriptions, and no more are allowed");
                    return Err(Error::new(&code::CONFLICT, text));
                }
                let subscription = Subscriptions::ensure(tx, &key, &filter, start)?;
                tx.record(&ctx, Change::new(&SUBSCRIPTION_WRITE, &resource))?;
                Ok(subscription)
            })
            .await
    }

    pub async fn subscription(
        &self,
        ctx: &Ctx,
        name: &Name,
        tenant: Option<&Name>,
    ) -> Result<Subscription> {
        let filter = self.filter(ctx, tenant, String::new()).await?;
        ctx.authorize(&SUBSCRIPTION_READ, &place(&filter, name)).await?;
        let key = key(&filter, name);
        let found = self.db.read(move |tx| Subscriptions::find(tx, &key)).await?;
        found.ok_or_else(|| Error::not_found("subscription", name))
    }

    /// What the subscription has not acknowledged yet, and where it would then stand.
    pub async fn pending(
        &self,
        ctx: &Ctx,
        name: &Name,
        tenant: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Event>, Cursor)> {
        let subscription = self.subscription(ctx, name, tenant).await?;
        self.read(ctx, subscription.cursor, subscription.filter(), limit).await
    }

    pub async fn acknowledge(
        &self,
        ctx: &Ctx,
        name: &Name,
        tenant: Option<&Name>,
        cursor: Cursor,
    ) -> Result<()> {
        let subscription = self.subscription(ctx, name, tenant).await?;
        let resource = place(&subscription.filter(), name);
        ctx.authorize(&SUBSCRIPTION_WRITE, &resource).await?;
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                Subscriptions::acknowledge(tx, &subscription.name, cursor)?;
                tx.record(
                    &ctx,
                    Change::new(&SUBSCRIPTION_WRITE, &resource).detail("cursor", cursor),
                )
            })
            .await
    }

    pub async fn unsubscribe(&self, ctx: &Ctx, name: &Name, tenant: Option<&Name>) -> Result<()> {
        let subscription = self.subscription(ctx, name, tenant).await?;
        let resource = place(&subscription.filter(), name);
        ctx.authorize(&SUBSCRIPTION_WRITE, &resource).await?;
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                Subscriptions::delete(tx, &subscription.name)?;
                tx.record(&ctx, Change::new(&SUBSCRIPTION_WRITE, &resource).detail("deleted", true))
            })
            .await
    }

    /// The consumer side for work inside the platform.
    #[must_use]
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }
}

/// An event is read by those who may read events where it happened.
pub(super) fn resource(event: &Event) -> Resource {
    let scope = match (event.tenant, event.project) {
        (Some(tenant), Some(project)) => Scope::Project(tenant, project),
        (Some(tenant), None) => Scope::Tenant(tenant),
        _ => Scope::Platform,
    };
    Resource::new("event", event.id, scope)
}

/// Tenants choose names freely: each has a name space of its own.
fn key(filter: &Filter, name: &Name) -> String {
    match filter.tenant {
        Some(tenant) => format!("{tenant}/{name}"),
        None => format!("platform/{name}"),
    }
}

fn place(filter: &Filter, name: &Name) -> Resource {
    let scope = filter.tenant.map_or(Scope::Platform, Scope::Tenant);
    Resource::new("subscription", key(filter, name), scope).shown_as(name)
}
