//! Data keys as rows: wrapped, versioned, each with a zone.

use falaj_base::{Error, KeyId, Name, Result, TenantId, Timestamp, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::manager::{RootVersion, Wrapped};
use crate::db::{Migration, Row, Tx, params};

/// `tenant` is `platform` for the platform's own key. `wrapped` is null once a key is destroyed.
pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "tenant_key",
    sql: "
        CREATE TABLE tenant_key (
            id TEXT PRIMARY KEY, tenant TEXT NOT NULL, zone TEXT NOT NULL,
            version INTEGER NOT NULL, state TEXT NOT NULL, wrapped BLOB, wrapped_by TEXT,
            created_at INTEGER NOT NULL, retired_at INTEGER, destroyed_at INTEGER,
            UNIQUE (tenant, zone, version));
        CREATE INDEX tenant_key_tenant ON tenant_key (tenant, id);
        CREATE INDEX tenant_key_wrapped_by ON tenant_key (zone, wrapped_by);",
}];

/// What may be told about a key: everything but the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyInfo {
    pub id: KeyId,
    /// Absent for the platform's own key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The zone whose key manager wraps it.
    pub zone: Name,
    pub version: u32,
    pub state: KeyState,
    /// The root key version that wraps it; absent once destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrapped_by: Option<String>,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroyed_at: Option<Timestamp>,
}

/// Where a key stands in its life; it only ever moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Seals and opens.
    Active,
    /// Opens only: a newer version seals.
    Retired,
    /// Gone, and with it all that it sealed.
    Destroyed,
}

impl KeyState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Retired => "retired",
            Self::Destroyed => "destroyed",
        }
    }
}

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Platform,
    Tenant(TenantId),
}

impl Owner {
    fn text(self) -> String {
        match self {
            Self::Platform => "platform".to_owned(),
            Self::Tenant(tenant) => tenant.to_string(),
        }
    }
}

/// A key with its wrapped bytes.
#[derive(Clone, Debug)]
pub(super) struct KeyRow {
    pub(super) info: KeyInfo,
    wrapped: Option<Wrapped>,
}

impl KeyRow {
    /// What the wrapping is bound to.
    pub(super) fn name(&self) -> String {
        let owner = self.info.tenant.map_or(Owner::Platform, Owner::Tenant);
        wrap_name(owner, &self.info.zone, self.info.id)
    }

    pub(super) fn wrapped(&self) -> Result<&Wrapped> {
        self.wrapped.as_ref().ok_or_else(|| {
            let id = self.info.id;
            Error::new(&code::ERASED, format!("the key {id} was destroyed, and its data with it"))
        })
    }
}

pub(super) fn wrap_name(owner: Owner, zone: &Name, id: KeyId) -> String {
    format!("falaj/key/1/{}/{zone}/{id}", owner.text())
}

/// A key that is wrapped but not yet in the database.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    pub(super) owner: Owner,
    pub(super) zone: Name,
    pub(super) id: KeyId,
    pub(super) wrapped: Wrapped,
}

/// Adds the key as the given version, unless that version is there already.
pub(super) fn insert(tx: &mut Tx<'_>, fresh: &Fresh, version: u32) -> Result<bool> {
    let inserted = tx.execute(
        "INSERT INTO tenant_key
         (id, tenant, zone, version, state, wrapped, wrapped_by, created_at)
         VALUES ($1, $2, $3, $4, 'active', $5, $6, $7)
         ON CONFLICT (tenant, zone, version) DO NOTHING",
        &params![
            fresh.id,
            fresh.owner.text(),
            &fresh.zone,
            version,
            fresh.wrapped.bytes.clone(),
            fresh.wrapped.by.to_string(),
            tx.now(),
        ],
    )?;
    Ok(inserted == 1)
}

pub(super) fn platform(tx: &mut Tx<'_>) -> Result<Option<KeyRow>> {
    let found = tx.query_opt(
        "SELECT * FROM tenant_key WHERE tenant = 'platform' AND version = $1",
        &params![1],
    )?;
    found.as_ref().map(parse).transpose()
}

pub(super) fn active(tx: &mut Tx<'_>, tenant: TenantId, zone: &Name) -> Result<Option<KeyRow>> {
    let found = tx.query_opt(
        "SELECT * FROM tenant_key WHERE tenant = $1 AND zone = $2 AND state = 'active'",
        &params![tenant, zone],
    )?;
    found.as_ref().map(parse).transpose()
}

pub(super) fn by_id(tx: &mut Tx<'_>, tenant: TenantId, id: KeyId) -> Result<Option<KeyRow>> {
    let found = tx.query_opt(
        "SELECT * FROM tenant_key WHERE id = $1 AND tenant = $2",
        &params![id, tenant],
    )?;
    found.as_ref().map(parse).transpose()
}

/// A tenant's keys after a given id, oldest first.
pub(super) fn list(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    after: &str,
    limit: usize,
) -> Result<Vec<KeyInfo>> {
    let rows = tx.query(
        "SELECT * FROM tenant_key WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3",
        &params![tenant, after, limit],
    )?;
    rows.iter().map(|row| parse(row).map(|key| key.info)).collect()
}

/// The newest version a tenant ever had in a zone; 0 if none.
pub(super) fn newest_version(tx: &mut Tx<'_>, tenant: TenantId, zone: &Name) -> Result<u32> {
    tx.query_one(
        "SELECT COALESCE(MAX(version), 0) AS newest FROM tenant_key
         WHERE tenant = $1 AND zone = $2",
        &params![tenant, zone],
    )?
    .get("newest")
}

pub(super) fn retire_active(tx: &mut Tx<'_>, tenant: TenantId, zone: &Name) -> Result<u64> {
    tx.execute(
        "UPDATE tenant_key SET state = 'retired', retired_at = $3
         WHERE tenant = $1 AND zone = $2 AND state = 'active'",
        &params![tenant, zone, tx.now()],
    )
}

/// Deletes the wrapped bytes for good.
pub(super) fn destroy(tx: &mut Tx<'_>, tenant: TenantId, id: KeyId) -> Result<u64> {
    tx.execute(
        "UPDATE tenant_key
         SET state = $4, wrapped = NULL, wrapped_by = NULL, destroyed_at = $3
         WHERE id = $1 AND tenant = $2 AND state <> $4",
        &params![id, tenant, tx.now(), KeyState::Destroyed.as_str()],
    )
}

/// Some keys of a zone that an older root key version still wraps.
pub(super) fn behind(
    tx: &mut Tx<'_>,
    zone: &Name,
    current: &RootVersion,
    limit: u32,
) -> Result<Vec<KeyRow>> {
    let rows = tx.query(
        "SELECT * FROM tenant_key WHERE zone = $1 AND wrapped_by <> $2 ORDER BY id LIMIT $3",
        &params![zone, current.to_string(), limit],
    )?;
    rows.iter().map(parse).collect()
}

pub(super) fn count_behind(tx: &mut Tx<'_>, zone: &Name, current: &RootVersion) -> Result<u64> {
    tx.query_one(
        "SELECT COUNT(*) AS behind FROM tenant_key WHERE zone = $1 AND wrapped_by <> $2",
        &params![zone, current.to_string()],
    )?
    .get("behind")
}

/// Replaces the wrapping, unless the key was destroyed or rewrapped in the meantime.
pub(super) fn rewrapped(tx: &mut Tx<'_>, id: KeyId, old: &Wrapped, new: &Wrapped) -> Result<u64> {
    tx.execute(
        "UPDATE tenant_key SET wrapped = $3, wrapped_by = $4 WHERE id = $1 AND wrapped_by = $2",
        &params![id, old.by.to_string(), new.bytes.clone(), new.by.to_string()],
    )
}

fn parse(row: &Row) -> Result<KeyRow> {
    let wrapped_by: Option<String> = row.get("wrapped_by")?;
    let bytes: Option<Vec<u8>> = row.get("wrapped")?;
    let wrapped = match (&wrapped_by, bytes) {
        (Some(by), Some(bytes)) => Some(Wrapped { by: by.parse()?, bytes }),
        _ => None,
    };
    let state: String = row.get("state")?;
    let tenant: String = row.get("tenant")?;
    let info = KeyInfo {
        id: row.get("id")?,
        tenant: if tenant == "platform" { None } else { Some(tenant.parse()?) },
        zone: row.get("zone")?,
        version: row.get("version")?,
        state: match state.as_str() {
            "active" => KeyState::Active,
            "retired" => KeyState::Retired,
            "destroyed" => KeyState::Destroyed,
            other => return Err(Error::internal(format!("a key is {other}"))),
        },
        wrapped_by,
        created_at: row.get("created_at")?,
        retired_at: row.get("retired_at")?,
        destroyed_at: row.get("destroyed_at")?,
    };
    Ok(KeyRow { info, wrapped })
}

/// Whether no key of this zone exists yet.
pub(super) fn none_in(tx: &mut Tx<'_>, zone: &Name) -> Result<bool> {
    let found = tx.query("SELECT id FROM tenant_key WHERE zone = $1 LIMIT 1", &params![zone])?;
    Ok(found.is_empty())
}
