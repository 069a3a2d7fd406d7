//! Blobs and their references as rows.
//!
//! The count of references stands in the blob's own row, so that attaching and collecting meet in
//! one row lock: whichever comes second sees what the first did, on both engines.

use falaj_base::{BlobId, Error, KeyId, Name, Result, TenantId, Timestamp, code};

use super::upload::Staged;
use crate::db::{Migration, Row, Tx, Value, params};

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "blob",
    sql: "
        CREATE TABLE blob (
            id TEXT PRIMARY KEY, tenant TEXT NOT NULL, root TEXT NOT NULL, key_id TEXT NOT NULL,
            state TEXT NOT NULL, refs INTEGER NOT NULL, size INTEGER, header BLOB, digest BLOB,
            tag BLOB, upload TEXT, created_at INTEGER NOT NULL, touched_at INTEGER NOT NULL);
        CREATE INDEX blob_content ON blob (key_id, tag);
        CREATE INDEX blob_state ON blob (state, touched_at);
        CREATE TABLE blob_ref (
            blob TEXT NOT NULL, owner_kind TEXT NOT NULL, owner TEXT NOT NULL,
            PRIMARY KEY (owner_kind, owner, blob));
        CREATE INDEX blob_ref_blob ON blob_ref (blob);",
}];

/// A blob that can be read.
#[derive(Clone, Debug)]
pub(super) struct BlobRow {
    pub(super) id: BlobId,
    pub(super) root: Name,
    pub(super) key: KeyId,
    pub(super) size: u64,
    pub(super) header: Vec<u8>,
    pub(super) digest: Vec<u8>,
}

/// A blob whose bytes are to be deleted.
#[derive(Clone, Debug)]
pub(super) struct Condemned {
    pub(super) id: BlobId,
    pub(super) tenant: TenantId,
    pub(super) root: Name,
    pub(super) upload: Option<String>,
}

pub(super) fn insert_pending(
    tx: &mut Tx<'_>,
    id: BlobId,
    tenant: TenantId,
    root: &Name,
    key: KeyId,
) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO blob (id, tenant, root, key_id, state, refs, created_at, touched_at)
         VALUES ($1, $2, $3, $4, 'pending', 0, $5, $5)",
        &params![id, tenant, root, key, now],
    )
    .map(drop)
}

/// Shows that an upload is alive. One that is no longer pending was given up by the collector.
pub(super) fn touch(tx: &mut Tx<'_>, id: BlobId) -> Result<()> {
    let now = tx.now();
    let touched = tx.execute(
        "UPDATE blob SET touched_at = $2 WHERE id = $1 AND state = 'pending'",
        &params![id, now],
    )?;
    if touched == 1 { Ok(()) } else { Err(given_up()) }
}

pub(super) fn note_upload(tx: &mut Tx<'_>, id: BlobId, upload: &str) -> Result<()> {
    tx.execute("UPDATE blob SET upload = $2 WHERE id = $1", &params![id, upload]).map(drop)
}

fn given_up() -> Error {
    Error::new(&code::CONFLICT, "the upload did not move for too long and was given up")
}

pub(super) fn attach(
    tx: &mut Tx<'_>,
    staged: &Staged,
    owner_kind: &'static str,
    owner: &str,
) -> Result<BlobId> {
    // Holds the key's row until the commit: a destruction comes before, and is seen, or after.
    let key_lives = tx.execute(
        "UPDATE tenant_key SET state = state WHERE id = $1 AND state <> 'destroyed'",
        &params![staged.key],
    )?;
    if key_lives == 0 {
        let text = "the key of this upload was destroyed while it ran; send it again";
        return Err(Error::new(&code::CONFLICT, text));
    }
    let twin = tx.query(
        "SELECT id FROM blob WHERE key_id = $1 AND tag = $2 AND size = $3 AND root = $4
         AND state IN ('ready', 'unused') ORDER BY id LIMIT 1",
        &params![staged.key, &staged.tag[..], staged.size, &staged.root],
    )?;
    if let Some(twin) = twin.first() {
        let twin: BlobId = twin.get("id")?;
        // The collector may have condemned it since; then the staged blob is used after all.
        if add_ref(tx, twin, owner_kind, owner)? {
            doom_staged(tx, staged.blob)?;
            return Ok(twin);
        }
    }
    let made_ready = tx.execute(
        "UPDATE blob SET state = 'ready', size = $2, header = $3, digest = $4, tag = $5,
         upload = NULL, touched_at = $6 WHERE id = $1 AND state = 'pending'",
        &params![
            staged.blob,
            staged.size,
            &staged.header[..],
            staged.digest.clone(),
            &staged.tag[..],
            tx.now(),
        ],
    )?;
    if made_ready == 0 || !add_ref(tx, staged.blob, owner_kind, owner)? {
        return Err(given_up());
    }
    Ok(staged.blob)
}

/// Adds a reference unless the blob is condemned. Taking the row's lock comes first.
fn add_ref(tx: &mut Tx<'_>, blob: BlobId, owner_kind: &str, owner: &str) -> Result<bool> {
    let counted = tx.execute(
        "UPDATE blob SET refs = refs + 1, state = 'ready'
         WHERE id = $1 AND state IN ('ready', 'unused')",
        &params![blob],
    )?;
    if counted == 0 {
        return Ok(false);
    }
    let added = tx.execute(
        "INSERT INTO blob_ref (blob, owner_kind, owner) VALUES ($1, $2, $3)
         ON CONFLICT (owner_kind, owner, blob) DO NOTHING",
        &params![blob, owner_kind, owner],
    )?;
    if added == 0 {
        // The owner had it already: one reference, counted once.
        tx.execute("UPDATE blob SET refs = refs - 1 WHERE id = $1", &params![blob])?;
    }
    Ok(true)
}

/// One more owner for a blob that can be read. One that is condemned, or whose key was destroyed,
/// cannot be.
pub(super) fn share(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    blob: BlobId,
    owner_kind: &'static str,
    owner: &str,
) -> Result<()> {
    let ours =
        tx.query_opt("SELECT id FROM blob WHERE id = $1 AND tenant = $2", &params![blob, tenant])?;
    if ours.is_some() && add_ref(tx, blob, owner_kind, owner)? {
        return Ok(());
    }
    Err(Error::new(&code::CONFLICT, "the content to be copied is no longer there"))
}

pub(super) fn detach(
    tx: &mut Tx<'_>,
    blob: BlobId,
    owner_kind: &'static str,
    owner: &str,
) -> Result<()> {
    let removed = tx.execute(
        "DELETE FROM blob_ref WHERE owner_kind = $1 AND owner = $2 AND blob = $3",
        &params![owner_kind, owner, blob],
    )?;
    if removed == 0 {
        return Ok(());
    }
    let now = tx.now();
    tx.execute(
        "UPDATE blob SET refs = refs - 1, touched_at = $2,
         state = CASE WHEN refs > 1 THEN state WHEN state = 'erased' THEN 'doomed'
                      ELSE 'unused' END
         WHERE id = $1",
        &params![blob, now],
    )
    .map(drop)
}

/// Gives up an upload that will not be attached: the collector deletes it without waiting.
pub(super) fn doom_staged(tx: &mut Tx<'_>, id: BlobId) -> Result<()> {
    tx.execute("UPDATE blob SET state = 'doomed' WHERE id = $1 AND state = 'pending'", &params![id])
        .map(drop)
}

/// The blobs of a tenant that can be read, of those asked for. An erased one still counts: its
/// key answers for it.
pub(super) fn visible(tx: &mut Tx<'_>, tenant: TenantId, ids: &[BlobId]) -> Result<Vec<BlobRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<String> = (2..ids.len() + 2).map(|place| format!("${place}")).collect();
    let sql = format!(
        "SELECT id, root, key_id, size, header, digest FROM blob WHERE tenant = $1
         AND state IN ('ready', 'unused', 'erased') AND id IN ({})",
        places.join(", ")
    );
    let tenant = std::iter::once(Value::from(tenant));
    let values: Vec<Value> = tenant.chain(ids.iter().map(Value::from)).collect();
    tx.query(&sql, &values)?.iter().map(parse).collect()
}

fn parse(row: &Row) -> Result<BlobRow> {
    Ok(BlobRow {
        id: row.get("id")?,
        root: row.get("root")?,
        key: row.get("key_id")?,
        size: row.get("size")?,
        header: row.get("header")?,
        digest: row.get("digest")?,
    })
}

/// Condemns uploads that stopped moving and blobs that nothing refers to.
pub(super) fn condemn(
    tx: &mut Tx<'_>,
    uploads_before: Timestamp,
    unused_before: Timestamp,
    limit: u32,
) -> Result<u64> {
    let uploads = tx.execute(
        "UPDATE blob SET state = 'doomed' WHERE state = 'pending' AND touched_at < $1 AND id IN
         (SELECT id FROM blob WHERE state = 'pending' AND touched_at < $1
          ORDER BY touched_at LIMIT $2)",
        &params![uploads_before, limit],
    )?;
    let unused = tx.execute(
        "UPDATE blob SET state = 'doomed' WHERE state = 'unused' AND refs = 0
         AND touched_at < $1 AND id IN
         (SELECT id FROM blob WHERE state = 'unused' AND touched_at < $1
          ORDER BY touched_at LIMIT $2)",
        &params![unused_before, limit],
    )?;
    Ok(uploads + unused)
}

/// Condemned blobs after a given id.
pub(super) fn condemned(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Vec<Condemned>> {
    let rows = tx.query(
        "SELECT id, tenant, root, upload FROM blob WHERE state = 'doomed' AND id > $1
         ORDER BY id LIMIT $2",
        &params![after, limit],
    )?;
    rows.iter().map(parse_condemned).collect()
}

/// Blobs after a given id whose key was destroyed: nobody can open them, so the bytes can go too.
pub(super) fn unreadable(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Vec<Condemned>> {
    let rows = tx.query(
        "SELECT blob.id, blob.tenant, blob.root, blob.upload FROM tenant_key
         JOIN blob ON blob.key_id = tenant_key.id
         WHERE tenant_key.state = 'destroyed' AND blob.state IN ('ready', 'unused')
         AND blob.id > $1 ORDER BY blob.id LIMIT $2",
        &params![after, limit],
    )?;
    rows.iter().map(parse_condemned).collect()
}

fn parse_condemned(row: &Row) -> Result<Condemned> {
    Ok(Condemned {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        root: row.get("root")?,
        upload: row.get("upload")?,
    })
}

pub(super) fn delete_doomed(tx: &mut Tx<'_>, id: BlobId) -> Result<()> {
    tx.execute("DELETE FROM blob WHERE id = $1 AND state = 'doomed'", &params![id]).map(drop)
}

/// The bytes are gone. A row that is still referred to stays, to answer `ERASED`.
pub(super) fn mark_erased(tx: &mut Tx<'_>, id: BlobId) -> Result<()> {
    tx.execute(
        "UPDATE blob SET tag = NULL, state = CASE WHEN refs > 0 THEN 'erased' ELSE 'doomed' END
         WHERE id = $1 AND state IN ('ready', 'unused')",
        &params![id],
    )
    .map(drop)
}
