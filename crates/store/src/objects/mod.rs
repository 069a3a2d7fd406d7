//! Blobs: bytes of any length, sealed, in an object root, visible all at once or not at all.
//!
//! ```text
//! upload   row `pending` → hash, seal and write as it arrives → on disk → Staged
//! attach   in the caller's transaction: the row becomes `ready`, referenced by its owner
//! detach   the last reference gone: `unused`
//! collect  `pending` or `unused` for too long → `doomed` → bytes deleted → row deleted
//! ```
//!
//! Must hold:
//! - A blob is visible only through a reference, and a reference is only made after its bytes are
//!   durable: on a local disk that means fsync of the file and of its directories.
//! - A blob lies in a root of the zone it was placed in, sealed by a key of that zone.
//! - Memory per transfer is bounded, whatever the length of the object.
//! - What is read was authenticated segment by segment, and a whole read also against the SHA-256
//!   of the plaintext before its last piece is handed out.
//! - Where a blob lies is derived from ids alone, never from a name somebody chose.
//! - Equal contents are kept once per tenant key; nothing outside the key's reach tells that two
//!   contents are equal.
//!
//! Not here: names and content types of objects, and who may read them (`server::objects`).

mod bucket;
mod buffers;
mod collect;
mod config;
mod copy;
mod failure;
mod lane;
mod parts;
mod read;
mod root;
mod row;
mod staged;
mod upload;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use falaj_base::{BlobId, Error, Name, Result, TenantId, code};

pub use bucket::BucketConfig;
pub use collect::Collected;
pub(crate) use collect::DELETION_LEASE;
pub use config::{ObjectsConfig, RootConfig};
pub use copy::{SealedRoots, SealedWriter};
pub use read::{Blob, BlobStream};
pub use root::Root;
pub use row::MIGRATIONS;
pub use upload::{Expected, Staged};

use crate::db::{Db, Tx};
use crate::keys::Keys;
use crate::seal;
use row::BlobRow;

/// Up to this much it is not worth handing the work to another thread.
const INLINE: usize = 128 << 10;

/// The way to every blob. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Objects(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: ObjectsConfig,
    roots: BTreeMap<Name, Arc<Root>>,
    db: Db,
    keys: Keys,
}

/// What is known about a blob without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    pub size: u64,
    /// Absent once the key that sealed it was destroyed.
    pub sha256: Option<[u8; 32]>,
    /// The zone of the root it lies in.
    pub zone: Name,
}

impl Objects {
    /// Opens the configured roots; local directories are created with mode 0700.
    pub fn open(config: &ObjectsConfig, data_dir: &Path, db: Db, keys: Keys) -> Result<Self> {
        let roots = config.roots.iter().map(|root| Root::open(root, config, data_dir));
        Self::with_roots(config, roots.collect::<Result<_>>()?, db, keys)
    }

    /// The same over roots that are already open.
    pub fn with_roots(
        config: &ObjectsConfig,
        roots: Vec<Root>,
        db: Db,
        keys: Keys,
    ) -> Result<Self> {
        let mut named = BTreeMap::new();
        for root in roots {
            let name = root.name.clone();
            if named.insert(name.clone(), Arc::new(root)).is_some() {
                let text = format!("two object roots are called `{name}`");
                return Err(Error::new(&code::INVALID_CONFIG, text).at("objects.roots"));
            }
        }
        Ok(Self(Arc::new(Inner { config: config.clone(), roots: named, db, keys })))
    }

    #[must_use]
    pub fn config(&self) -> &ObjectsConfig {
        &self.0.config
    }

    /// Whether data may be placed in `zone`: a root and a key manager must be there. Asked before
    /// a byte moves; the error names the rule.
    pub fn check_zone(&self, zone: &Name) -> Result<()> {
        self.root_in(zone)?;
        if self.0.keys.serves(zone) {
            return Ok(());
        }
        let rule = format!("zone `{zone}` has no key manager: its keys must lie in the zone");
        Err(Error::new(&code::RESIDENCY, rule))
    }

    /// The root that takes new blobs of a zone: the first by name.
    fn root_in(&self, zone: &Name) -> Result<&Arc<Root>> {
        self.0.roots.values().find(|root| root.zone == *zone).ok_or_else(|| {
            let rule = format!("zone `{zone}` has no object root: its data must lie in the zone");
            Error::new(&code::RESIDENCY, rule)
        })
    }

    fn root(&self, name: &Name) -> Result<&Arc<Root>> {
        self.0.roots.get(name).ok_or_else(|| {
            let text = format!("the object root `{name}` is not configured here");
            Error::new(&code::UNAVAILABLE, text)
        })
    }

    /// Makes a staged upload visible, as part of the caller's transaction. The blob returned is
    /// the one to keep: an equal one that was there already, or the staged one.
    pub fn attach(
        tx: &mut Tx<'_>,
        staged: &Staged,
        owner_kind: &'static str,
        owner: &str,
    ) -> Result<BlobId> {
        row::attach(tx, staged, owner_kind, owner)
    }

    /// Gives a visible blob of this tenant one more owner, as part of the caller's transaction: a
    /// copy that moves no bytes.
    pub fn share(
        tx: &mut Tx<'_>,
        tenant: TenantId,
        blob: BlobId,
        owner_kind: &'static str,
        owner: &str,
    ) -> Result<()> {
        row::share(tx, tenant, blob, owner_kind, owner)
    }

    /// Takes a reference away, as part of the caller's transaction.
    pub fn detach(
        tx: &mut Tx<'_>,
        blob: BlobId,
        owner_kind: &'static str,
        owner: &str,
    ) -> Result<()> {
        row::detach(tx, blob, owner_kind, owner)
    }

    /// Opens a blob for reading. Its key is unwrapped now, its bytes are not touched yet.
    pub async fn blob(&self, tenant: TenantId, id: BlobId) -> Result<Blob> {
        let found = self.0.db.read(move |tx| row::visible(tx, tenant, &[id])).await?;
        let row = found.into_iter().next().ok_or_else(|| Error::not_found("blob", id))?;
        let key = self.0.keys.by_id(tenant, row.key).await?;
        let root = self.root(&row.root)?.clone();
        Blob::new(self.0.config.read_chunk, root, tenant, &row, &key.key)
    }

    /// Opens an upload that nothing refers to yet, for whoever looks into it before it is attached.
    pub async fn staged(&self, tenant: TenantId, staged: &Staged) -> Result<Blob> {
        let key = self.0.keys.by_id(tenant, staged.key).await?;
        let root = self.root(&staged.root)?.clone();
        let row = BlobRow {
            id: staged.blob,
            root: staged.root.clone(),
            key: staged.key,
            size: staged.size,
            header: staged.header.to_vec(),
            digest: staged.digest.clone(),
        };
        Blob::new(self.0.config.read_chunk, root, tenant, &row, &key.key)
    }

    /// What is known about some blobs, for a list of them.
    pub async fn describe(
        &self,
        tenant: TenantId,
        ids: Vec<BlobId>,
    ) -> Result<HashMap<BlobId, BlobInfo>> {
        let rows = self.0.db.read(move |tx| row::visible(tx, tenant, &ids)).await?;
        let mut infos = HashMap::with_capacity(rows.len());
        for row in rows {
            let sha256 = match self.0.keys.by_id(tenant, row.key).await {
                Ok(key) => Some(open_digest(&key.key, tenant, &row)?),
                Err(error) if error.code() == &code::ERASED => None,
                Err(error) => return Err(error),
            };
            let zone = self.root(&row.root)?.zone.clone();
            infos.insert(row.id, BlobInfo { size: row.size, sha256, zone });
        }
        Ok(infos)
    }
}

/// What a blob's bytes and digest are bound to: moved to another blob or tenant they do not open.
fn blob_name(tenant: TenantId, id: BlobId) -> Vec<u8> {
    format!("falaj/blob/1/{tenant}/{id}").into_bytes()
}

fn open_digest(key: &seal::DataKey, tenant: TenantId, row: &BlobRow) -> Result<[u8; 32]> {
    let digest = seal::open_small(key, &blob_name(tenant, row.id), &row.digest)?;
    digest.try_into().map_err(|_| Error::new(&code::INTEGRITY, "a digest has the wrong length"))
}
