//! Tenant keys: the current one, any one by id, rotation and destruction.

use std::collections::BTreeMap;
use std::sync::Arc;

use falaj_base::{Error, KeyId, Name, Result, TenantId, code};

use super::manager::KeyManager;
use super::row::{self, Fresh, KeyInfo, KeyRow, Owner, wrap_name};
use super::{Keys, manager, unwrap_row};
use crate::db::Tx;
use crate::seal::DataKey;

/// An unwrapped tenant key.
#[derive(Clone, Debug)]
pub struct TenantKey {
    pub id: KeyId,
    pub zone: Name,
    pub key: Arc<DataKey>,
}

/// A key that is made and wrapped; it takes effect when a transaction installs it.
#[derive(Clone, Debug)]
pub struct NewKey {
    tenant: TenantId,
    fresh: Fresh,
}

impl NewKey {
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.fresh.id
    }

    #[must_use]
    pub fn zone(&self) -> &Name {
        &self.fresh.zone
    }
}

impl Keys {
    /// The key that seals for this tenant in this zone now; the first one is made on first use.
    pub async fn current(&self, tenant: TenantId, zone: &Name) -> Result<TenantKey> {
        let wanted = zone.clone();
        let found = self.0.db.read(move |tx| row::active(tx, tenant, &wanted)).await?;
        let row = match found {
            Some(row) => row,
            None => self.create(tenant, zone).await?,
        };
        self.unwrapped(row).await
    }

    /// The key with this id, to open what it sealed. A destroyed one is `ERASED`.
    pub async fn by_id(&self, tenant: TenantId, id: KeyId) -> Result<TenantKey> {
        let found = self.0.db.read(move |tx| row::by_id(tx, tenant, id)).await?;
        // Sealed data names a key that must exist; to name another tenant's is no different.
        let row =
            found.ok_or_else(|| Error::new(&code::INTEGRITY, "the data names no known key"))?;
        self.unwrapped(row).await
    }

    /// Makes and wraps a new version, outside any transaction: the key manager may be far away.
    pub async fn prepare(&self, tenant: TenantId, zone: &Name) -> Result<NewKey> {
        let fresh = fresh(&self.0.managers, Owner::Tenant(tenant), zone).await?;
        Ok(NewKey { tenant, fresh })
    }

    /// Makes a prepared key the current one; its predecessor still opens what it sealed.
    pub fn install(tx: &mut Tx<'_>, key: &NewKey) -> Result<KeyInfo> {
        let (tenant, zone) = (key.tenant, &key.fresh.zone);
        tx.lock(&format!("tenant-key/{tenant}/{zone}"))?;
        row::retire_active(tx, tenant, zone)?;
        let version = row::newest_version(tx, tenant, zone)? + 1;
        row::insert(tx, &key.fresh, version)?;
        Self::info(tx, tenant, key.fresh.id)?.ok_or_else(|| Error::internal("the new key vanished"))
    }

    /// Destroys a key for good, and with it everything that it sealed. Call
    /// [`Keys::forget`] once the transaction has committed.
    pub fn destroy(tx: &mut Tx<'_>, tenant: TenantId, id: KeyId) -> Result<KeyInfo> {
        let found = Self::info(tx, tenant, id)?;
        found.ok_or_else(|| Error::not_found("key", id))?;
        if row::destroy(tx, tenant, id)? == 0 {
            return Err(Error::new(&code::CONFLICT, format!("the key {id} is already destroyed")));
        }
        Self::info(tx, tenant, id)?.ok_or_else(|| Error::internal("the destroyed key vanished"))
    }

    /// Drops an unwrapped key from memory.
    pub fn forget(&self, id: KeyId) {
        self.0.cache.forget(id);
    }

    pub fn info(tx: &mut Tx<'_>, tenant: TenantId, id: KeyId) -> Result<Option<KeyInfo>> {
        Ok(row::by_id(tx, tenant, id)?.map(|row| row.info))
    }

    /// The keys a tenant ever had, oldest first, after a given id.
    pub fn list(
        tx: &mut Tx<'_>,
        tenant: TenantId,
        after: &str,
        limit: usize,
    ) -> Result<Vec<KeyInfo>> {
        row::list(tx, tenant, after, limit)
    }

    /// Of several servers that need a first key at once, one row wins and all use it. After the
    /// active key was destroyed this makes the next version.
    async fn create(&self, tenant: TenantId, zone: &Name) -> Result<KeyRow> {
        let new = self.prepare(tenant, zone).await?;
        let write = move |tx: &mut Tx<'_>| {
            let zone = &new.fresh.zone;
            tx.lock(&format!("tenant-key/{tenant}/{zone}"))?;
            if let Some(row) = row::active(tx, tenant, zone)? {
                return Ok(row);
            }
            let version = row::newest_version(tx, tenant, zone)? + 1;
            row::insert(tx, &new.fresh, version)?;
            row::active(tx, tenant, zone)?.ok_or_else(|| Error::internal("the new key vanished"))
        };
        self.0.db.write(write).await
    }

    async fn unwrapped(&self, row: KeyRow) -> Result<TenantKey> {
        let (id, zone) = (row.info.id, row.info.zone.clone());
        // The row is asked before the cache: a destroyed key is refused at once, on every server.
        if let Err(erased) = row.wrapped() {
            self.forget(id);
            return Err(erased);
        }
        let keys = self.clone();
        let unwrap = move || async move { unwrap_row(&keys.0.managers, &row).await };
        let key = self.0.cache.get(id, unwrap).await?;
        Ok(TenantKey { id, zone, key })
    }
}

pub(super) async fn fresh(
    managers: &BTreeMap<Name, Arc<dyn KeyManager>>,
    owner: Owner,
    zone: &Name,
) -> Result<Fresh> {
    let id = KeyId::new();
    let key = DataKey::generate()?;
    let wrapped = manager(managers, zone)?.wrap(&wrap_name(owner, zone, id), &key).await?;
    Ok(Fresh { owner, zone: zone.clone(), id, wrapped })
}
