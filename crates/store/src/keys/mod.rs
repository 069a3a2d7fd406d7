//! The key hierarchy: a root key in a key manager wraps data keys, data keys seal everything.
//!
//! ```text
//! root key (versions)        in the key manager of a zone: a keyring file, or Vault/OpenBao
//!  ├ platform key            one, never changed: token pepper, audit seed, remembered replies
//!  └ tenant key (versions)   one chain per tenant and zone: objects, small values
//!     └ stream key           derived per object, never stored
//! ```
//!
//! Must hold:
//! - A data key is at rest only wrapped, and the wrapping names its owner, zone and id: moved to
//!   another row it does not open.
//! - A key of a zone is wrapped by the key manager of that zone, or not at all.
//! - Rotating a root key rewraps data keys and touches no data. It can stop anywhere and go on.
//! - A destroyed key is gone: its wrapped bytes are deleted in the same transaction that says so,
//!   and whatever it sealed answers [`ERASED`](falaj_base::code::ERASED).
//! - An unwrapped key stays in memory for a bounded time, so an outage of the key manager is
//!   survived for a while; nothing new is wrapped during one.
//!
//! Not here: who may rotate or destroy (`governance::keyring`).

mod cache;
mod config;
mod local;
mod manager;
mod outside;
mod root;
mod row;
mod tenant;
#[cfg(test)]
mod tests;
mod transit;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use falaj_base::{Error, Name, Result, TenantId, code};
use tokio::sync::Notify;
use zeroize::Zeroizing;

pub use config::{KeysConfig, ManagerConfig, Provider, TransitConfig};
pub use local::LocalKeyring;
pub use manager::{KeyManager, RootVersion, Wrapped};
pub use outside::home_manager;
pub use root::RootInfo;
pub use row::{KeyInfo, KeyState, MIGRATIONS};
pub use tenant::{NewKey, TenantKey};
pub use transit::Transit;

use crate::db::Db;
use crate::seal::{self, DataKey};
use cache::Cache;
use row::{KeyRow, Owner};

/// The way to every key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    db: Db,
    managers: BTreeMap<Name, Arc<dyn KeyManager>>,
    home: Name,
    cache: Cache,
    platform: DataKey,
    rewrap_batch: u32,
    rewrap_now: Arc<Notify>,
}

impl Keys {
    /// Connects to the key managers and unwraps the platform's own key; makes one on first start.
    pub async fn open(config: &KeysConfig, data_dir: &Path, db: Db) -> Result<Self> {
        let mut managers: BTreeMap<Name, Arc<dyn KeyManager>> = BTreeMap::new();
        for manager in config.managers() {
            let zone = manager.zone.clone();
            let of = zone.clone();
            let fresh = db.read(move |tx| row::none_in(tx, &of)).await?;
            let connected = connect(&manager, data_dir, fresh).await?;
            if managers.insert(zone.clone(), connected).is_some() {
                return Err(Error::new(
                    &code::INVALID_CONFIG,
                    format!("zone `{zone}` has two key managers; a zone has one"),
                ));
            }
        }
        Self::with_managers(config, managers, db).await
    }

    /// The same over managers that are already there.
    pub async fn with_managers(
        config: &KeysConfig,
        managers: BTreeMap<Name, Arc<dyn KeyManager>>,
        db: Db,
    ) -> Result<Self> {
        let home = config.zone.clone();
        let row = platform_row(&db, &managers, &home).await?;
        let platform = unwrap_row(&managers, &row).await?;
        let cache = Cache::new(db.clock().clone(), config.cache_lifetime.get(), config.cache_keys);
        Ok(Self(Arc::new(Inner {
            db,
            managers,
            home,
            cache,
            platform,
            rewrap_batch: config.rewrap_batch,
            rewrap_now: Arc::default(),
        })))
    }

    /// A secret that is the same for the life of this installation and differs per purpose.
    pub fn platform_secret(&self, purpose: &'static str) -> Result<Zeroizing<[u8; 32]>> {
        self.0.platform.derive(b"falaj platform secret 1", purpose.as_bytes())
    }

    /// The zone of the platform itself, and so of its metadata database.
    #[must_use]
    pub fn home(&self) -> &Name {
        &self.0.home
    }

    /// Whether some key manager serves `zone`.
    #[must_use]
    pub fn serves(&self, zone: &Name) -> bool {
        self.0.managers.contains_key(zone)
    }

    /// Seals a little value for the metadata database. That database lies in the platform's own
    /// zone, so the tenant's key of that zone is used.
    pub async fn seal_small(
        &self,
        tenant: Option<TenantId>,
        associated_data: &[u8],
        plaintext: &[u8],
    ) -> Result<Vec<u8>> {
        let Some(tenant) = tenant else {
            return seal::seal_small(&self.0.platform, associated_data, plaintext);
        };
        let key = self.current(tenant, &self.0.home).await?;
        let mut sealed = key.id.as_uuid().as_bytes().to_vec();
        sealed.extend(seal::seal_small(&key.key, associated_data, plaintext)?);
        Ok(sealed)
    }

    /// Opens what [`Keys::seal_small`] sealed for the same owner.
    pub async fn open_small(
        &self,
        tenant: Option<TenantId>,
        associated_data: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>> {
        let Some(tenant) = tenant else {
            return seal::open_small(&self.0.platform, associated_data, sealed);
        };
        let (id, sealed) = sealed
            .split_at_checked(16)
            .ok_or_else(|| Error::new(&code::INTEGRITY, "a sealed value is cut short"))?;
        let id = uuid::Uuid::from_slice(id).map_err(Error::internal)?;
        let key = self.by_id(tenant, falaj_base::KeyId::from_uuid(id)).await?;
        seal::open_small(&key.key, associated_data, sealed)
    }
}

/// Connects to a key manager. A keyring file is made only for a zone that has no key yet.
async fn connect(
    config: &ManagerConfig,
    data_dir: &Path,
    fresh: bool,
) -> Result<Arc<dyn KeyManager>> {
    let path = config.keyring_path(data_dir);
    Ok(match config.provider {
        Provider::Local if fresh => Arc::new(LocalKeyring::open(&path)?),
        Provider::Local => Arc::new(LocalKeyring::open_existing(&path)?),
        Provider::Transit => Arc::new(Transit::connect(&config.transit).await?),
    })
}

fn manager<'m>(
    managers: &'m BTreeMap<Name, Arc<dyn KeyManager>>,
    zone: &Name,
) -> Result<&'m Arc<dyn KeyManager>> {
    managers.get(zone).ok_or_else(|| {
        let rule = format!("zone `{zone}` has no key manager: its keys must lie in the zone");
        Error::new(&code::RESIDENCY, rule)
    })
}

async fn unwrap_row(
    managers: &BTreeMap<Name, Arc<dyn KeyManager>>,
    row: &KeyRow,
) -> Result<DataKey> {
    let wrapped = row.wrapped()?;
    manager(managers, &row.info.zone)?.unwrap(&row.name(), wrapped).await
}

/// The platform's key, made if this is the first start. Of two servers that start at once, one
/// row wins and both use it.
async fn platform_row(
    db: &Db,
    managers: &BTreeMap<Name, Arc<dyn KeyManager>>,
    home: &Name,
) -> Result<KeyRow> {
    if let Some(row) = db.read(row::platform).await? {
        return Ok(row);
    }
    let fresh = tenant::fresh(managers, Owner::Platform, home).await?;
    db.write(move |tx| {
        row::insert(tx, &fresh, 1)?;
        row::platform(tx)?.ok_or_else(|| Error::internal("the platform key vanished"))
    })
    .await
}
