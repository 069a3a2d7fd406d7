//! The verbs on keys.

use falaj_base::{
    Ctx, Error, KeyId, Name, Page, PageQuery, Resource, Result, Scope, TenantId, code,
};
use falaj_store::db::Db;
use falaj_store::keys::{KeyInfo, Keys, RootInfo};
use falaj_store::record::Change;

use super::{KEY_DESTROY, KEY_READ, KEY_ROTATE, ROOT_KEY_READ, ROOT_KEY_ROTATE};
use crate::residency::on_record;
use crate::tenancy::Tenancy;

/// Keys, for those who may.
#[derive(Clone, Debug)]
pub struct Keyring {
    db: Db,
    keys: Keys,
    tenancy: Tenancy,
}

fn resource(id: KeyId, tenant: TenantId, zone: &Name) -> Resource {
    Resource::new("key", id, Scope::Tenant(tenant)).in_zone(zone.as_str())
}

fn root(zone: &Name) -> Resource {
    Resource::new("root-key", zone, Scope::Platform).in_zone(zone.as_str())
}

impl Keyring {
    #[must_use]
    pub fn new(db: Db, keys: Keys, tenancy: Tenancy) -> Self {
        Self { db, keys, tenancy }
    }

    /// A page of the keys a tenant ever had, oldest first.
    pub async fn list(&self, ctx: &Ctx, tenant: &Name, query: PageQuery) -> Result<Page<KeyInfo>> {
        let limit = query.limit()?;
        let tenant = self.tenancy.tenant(ctx, tenant).await?;
        ctx.authorize(&KEY_READ, &tenant.resource()).await?;
        let read = move |tx: &mut falaj_store::db::Tx<'_>| {
            Keys::list(tx, tenant.id, query.after(), limit + 1)
        };
        let keys = self.db.read(read).await?;
        Ok(Page::cut(keys, limit, |key| key.id.to_string()))
    }

    /// Makes a new version of the tenant's key in a zone, its own if none is named. What older
    /// versions sealed they still open.
    pub async fn rotate(&self, ctx: &Ctx, tenant: &Name, zone: Option<Name>) -> Result<KeyInfo> {
        let tenant = self.tenancy.tenant(ctx, tenant).await?;
        let zone = zone.unwrap_or_else(|| tenant.zone.clone());
        ctx.authorize(&KEY_ROTATE, &tenant.resource()).await?;
        if !tenant.allowed_zones.contains(&zone) {
            let rule = format!(
                "rule tenant-zones: tenant `{}` does not allow the zone `{zone}`",
                tenant.name
            );
            let refused = Err(Error::new(&code::RESIDENCY, rule).at("zone"));
            return on_record(&self.db, ctx, &KEY_ROTATE, &tenant.resource(), refused).await;
        }
        // Wrapped before the transaction: the key manager may be slow, or not there.
        let new = self.keys.prepare(tenant.id, &zone).await;
        let new = on_record(&self.db, ctx, &KEY_ROTATE, &tenant.resource(), new).await?;
        let resource = resource(new.id(), tenant.id, &zone);
        ctx.authorize(&KEY_ROTATE, &resource).await?;
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                let key = Keys::install(tx, &new)?;
                let change = Change::new(&KEY_ROTATE, &resource)
                    .event("key.rotated", &key)
                    .after(&key)
                    .detail("zone", &key.zone)
                    .detail("version", key.version)
                    .reply(201, &key);
                tx.record(&ctx, change)?;
                Ok(key)
            })
            .await
    }

    /// Destroys a key for good. Everything that it sealed is gone with it.
    pub async fn destroy(&self, ctx: &Ctx, tenant: &Name, id: KeyId) -> Result<KeyInfo> {
        let tenant = self.tenancy.tenant(ctx, tenant).await?.id;
        let found = self.db.read(move |tx| Keys::info(tx, tenant, id)).await?;
        let Some(old) = found else {
            ctx.authorize(&KEY_DESTROY, &Resource::absent("key", id, Scope::Tenant(tenant)))
                .await?;
            return Err(Error::not_found("key", id));
        };
        let resource = resource(id, tenant, &old.zone);
        ctx.authorize(&KEY_DESTROY, &resource).await?;
        let ctx = ctx.clone();
        let destroyed = self
            .db
            .write(move |tx| {
                let key = Keys::destroy(tx, tenant, id)?;
                let change = Change::new(&KEY_DESTROY, &resource)
                    .event("key.destroyed", &key)
                    .before(&old)
                    .after(&key)
                    .detail("zone", &key.zone)
                    .detail("version", key.version)
                    .reply(200, &key);
                tx.record(&ctx, change)?;
                Ok(key)
            })
            .await?;
        self.keys.forget(id);
        self.db.scrub().await?;
        Ok(destroyed)
    }

    /// The root keys of all zones.
    pub async fn roots(&self, ctx: &Ctx) -> Result<Vec<RootInfo>> {
        ctx.authorize(&ROOT_KEY_READ, &Resource::platform()).await?;
        self.keys.roots().await
    }

    /// Makes a new version of a zone's root key, the platform's own if none is named. The data
    /// keys are rewrapped in the background.
    pub async fn rotate_root(&self, ctx: &Ctx, zone: Option<Name>) -> Result<RootInfo> {
        let zone = zone.unwrap_or_else(|| self.keys.home().clone());
        let resource = root(&zone);
        ctx.authorize(&ROOT_KEY_ROTATE, &resource).await?;
        if !self.keys.serves(&zone) {
            return Err(Error::not_found("key manager for zone", &zone));
        }
        // The manager rotates outside our transaction. Should the record fail after it, the
        // caller is told that it failed; a version more does no harm, and is used from now on.
        let rotated = self.keys.rotate_root(&zone).await?;
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                let change = Change::new(&ROOT_KEY_ROTATE, &resource)
                    .event("root-key.rotated", &rotated)
                    .after(&rotated)
                    .detail("current", &rotated.current)
                    .reply(200, &rotated);
                tx.record(&ctx, change)?;
                Ok(rotated)
            })
            .await
    }
}
