//! The verbs on zones and transfers.

use falaj_base::{Ctx, Error, Name, Page, PageQuery, Resource, Result, Scope, Timestamp, code};
use falaj_store::db::{Db, Tx};
use falaj_store::record::Change;

use super::rule::{Permit, Transfer, Zone, judge};
use super::{TRANSFER_CREATE, TRANSFER_DELETE, ZONE_CREATE, ZONE_DELETE, ZONE_READ, store};

/// The zones of this platform.
#[derive(Clone, Debug)]
pub struct Residency {
    db: Db,
}

fn resource(name: &Name) -> Resource {
    Resource::new("zone", name, Scope::Platform).in_zone(name.as_str())
}

impl Residency {
    #[must_use]
    pub fn new(db: Db) -> Self {
        Self { db }
    }

    pub async fn create(
        &self,
        ctx: &Ctx,
        name: Name,
        jurisdiction: String,
        description: Option<String>,
    ) -> Result<Zone> {
        let resource = resource(&name);
        ctx.authorize(&ZONE_CREATE, &resource).await?;
        let zone = Zone { name, jurisdiction, description, created_at: self.db.now() };
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                store::insert_zone(tx, &zone)?;
                let change = Change::new(&ZONE_CREATE, &resource)
                    .event("zone.created", &zone)
                    .after(&zone)
                    .reply(201, &zone);
                tx.record(&ctx, change)?;
                Ok(zone)
            })
            .await
    }

    pub async fn get(&self, ctx: &Ctx, name: Name) -> Result<Zone> {
        ctx.authorize(&ZONE_READ, &resource(&name)).await?;
        self.db
            .read(move |tx| {
                store::find_zone(tx, &name)?.ok_or_else(|| Error::not_found("zone", &name))
            })
            .await
    }

    pub async fn list(&self, ctx: &Ctx, query: PageQuery) -> Result<Page<Zone>> {
        ctx.authorize(&ZONE_READ, &Resource::platform()).await?;
        let limit = query.limit()?;
        self.db
            .read(move |tx| {
                let zones = store::list_zones(tx, query.after(), limit + 1)?;
                Ok(Page::cut(zones, limit, |zone| zone.name.to_string()))
            })
            .await
    }

    /// Removes a zone nothing lies in: the database refuses while a tenant, project, key or
    /// transfer names it.
    pub async fn delete(&self, ctx: &Ctx, name: Name) -> Result<()> {
        let resource = resource(&name);
        ctx.authorize(&ZONE_DELETE, &resource).await?;
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                let zone =
                    store::find_zone(tx, &name)?.ok_or_else(|| Error::not_found("zone", &name))?;
                store::delete_zone(tx, &name)?;
                let change =
                    Change::new(&ZONE_DELETE, &resource).event("zone.deleted", &zone).before(&zone);
                tx.record(&ctx, change)
            })
            .await
    }

    pub async fn allow_transfer(
        &self,
        ctx: &Ctx,
        from: Name,
        to: Name,
        basis: String,
        expires_at: Option<Timestamp>,
    ) -> Result<Transfer> {
        let resource = resource(&from);
        ctx.authorize(&TRANSFER_CREATE, &resource).await?;
        let transfer = Transfer { from, to, basis, expires_at, created_at: self.db.now() };
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                for zone in [&transfer.from, &transfer.to] {
                    store::find_zone(tx, zone)?.ok_or_else(|| Error::not_found("zone", zone))?;
                }
                store::insert_transfer(tx, &transfer)?;
                let change = Change::new(&TRANSFER_CREATE, &resource)
                    .event("transfer.allowed", &transfer)
                    .after(&transfer)
                    .detail("to", &transfer.to)
                    .detail("basis", &transfer.basis)
                    .reply(201, &transfer);
                tx.record(&ctx, change)?;
                Ok(transfer)
            })
            .await
    }

    pub async fn transfers(
        &self,
        ctx: &Ctx,
        from: Name,
        query: PageQuery,
    ) -> Result<Page<Transfer>> {
        ctx.authorize(&ZONE_READ, &resource(&from)).await?;
        let limit = query.limit()?;
        self.db
            .read(move |tx| {
                let transfers = store::list_transfers(tx, &from, query.after(), limit + 1)?;
                Ok(Page::cut(transfers, limit, |transfer| transfer.to.to_string()))
            })
            .await
    }

    pub async fn end_transfer(&self, ctx: &Ctx, from: Name, to: Name) -> Result<()> {
        let resource = resource(&from);
        ctx.authorize(&TRANSFER_DELETE, &resource).await?;
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                let transfer = store::find_transfer(tx, &from, &to)?
                    .ok_or_else(|| Error::not_found("transfer", format!("{from} to {to}")))?;
                store::delete_transfer(tx, &from, &to)?;
                let change = Change::new(&TRANSFER_DELETE, &resource)
                    .event("transfer.ended", &transfer)
                    .before(&transfer)
                    .detail("to", &transfer.to);
                tx.record(&ctx, change)
            })
            .await
    }

    /// Answers whether a placement would be allowed, and by which rule, without making it.
    pub async fn explain(&self, ctx: &Ctx, from: Name, to: Name) -> Result<Permit> {
        ctx.authorize(&ZONE_READ, &resource(&from)).await?;
        self.db.read(move |tx| Self::require(tx, &from, &to)).await
    }

    /// The check itself, inside the transaction that would place the data: what it allows cannot
    /// be revoked in between.
    pub fn require(tx: &mut Tx<'_>, from: &Name, to: &Name) -> Result<Permit> {
        let (source, target) = (store::find_zone(tx, from)?, store::find_zone(tx, to)?);
        let transfer = store::find_transfer(tx, from, to)?;
        let now = tx.now();
        judge((from, source.as_ref()), (to, target.as_ref()), transfer.as_ref(), now)
            .map_err(Error::from)
    }

    /// Declares the zone of a fresh installation, unless it is there.
    pub async fn ensure(&self, name: Name, jurisdiction: String) -> Result<()> {
        let zone = Zone { name, jurisdiction, description: None, created_at: self.db.now() };
        let ctx = Ctx::system("first-start");
        let resource = resource(&zone.name);
        ctx.authorize(&ZONE_CREATE, &resource).await?;
        self.db
            .write(move |tx| {
                if store::find_zone(tx, &zone.name)?.is_some() {
                    return Ok(());
                }
                store::insert_zone(tx, &zone)?;
                let change = Change::new(&ZONE_CREATE, &resource).event("zone.created", &zone);
                tx.record(&ctx, change)
            })
            .await
            .or_else(|error| match error.code() {
                // Another server of a fresh cluster was first.
                taken if taken == &code::ALREADY_EXISTS => Ok(()),
                _ => Err(error),
            })
    }
}
