//! Records that are no rows, put aside.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::store::Key;
use crate::name::FeatureName;

/// A record that is no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Quarantined {
    pub id: String,
    pub source: FeatureName,
    /// The configured stream, the topic and the subject, between slashes.
    pub place: String,
    pub partition: i64,
    pub offset: i64,
    /// When it was put aside.
    pub at: Timestamp,
    pub reason: String,
    /// How many bytes it had.
    pub size: i64,
    /// Its beginning as text, if it is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Its beginning in Base64, if it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_base64: Option<String>,
    /// Whether it was longer than what is kept of it.
    pub truncated: bool,
}

/// A record about to be put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadRecord {
    pub(super) offset: i64,
    pub(super) reason: String,
    pub(super) size: usize,
    /// As much of it as is kept; none if it could not be read at all.
    pub(super) record: Option<Vec<u8>>,
}

/// Puts records aside, each once; the oldest of the source give way.
pub(super) fn put(tx: &mut Tx<'_>, key: &Key, bad: &[BadRecord], most: usize) -> Result<()> {
    let now = tx.now();
    for one in bad {
        tx.execute(
            "INSERT INTO feature_quarantine
                 (id, project, source, place, part, at_offset, at, reason, size, record)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (project, source, place, part, at_offset) DO NOTHING",
            &params![
                Uuid::now_v7().to_string(),
                key.project,
                key.source.as_str(),
                &key.place,
                key.part,
                one.offset,
                now,
                &one.reason,
                one.size,
                one.record.clone()
            ],
        )?;
    }
    tx.execute(
        "DELETE FROM feature_quarantine WHERE project = $1 AND source = $2 AND id <= (
             SELECT id FROM feature_quarantine WHERE project = $1 AND source = $2
             ORDER BY id DESC LIMIT 1 OFFSET $3)",
        &params![key.project, key.source.as_str(), most],
    )
    .map(drop)
}

/// Those of some sources, the oldest first, after one of them.
pub(super) fn page(
    tx: &mut Tx<'_>,
    project: ProjectId,
    sources: &[FeatureName],
    after: &str,
    limit: usize,
) -> Result<Vec<Quarantined>> {
    let mut found = Vec::new();
    for source in sources {
        let rows = tx.query(
            "SELECT id, source, place, part, at_offset, at, reason, size, record
             FROM feature_quarantine WHERE project = $1 AND source = $2 AND id > $3
             ORDER BY id LIMIT $4",
            &params![project, source.as_str(), after, limit],
        )?;
        for row in &rows {
            found.push(read(row)?);
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found.truncate(limit);
    Ok(found)
}

/// What is kept of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: String,
    /// How many bytes it had.
    pub(crate) size: usize,
    pub(crate) record: Vec<u8>,
}

impl Kept {
    /// Whether that is not all of it.
    pub(crate) fn is_cut(&self) -> bool {
        self.record.len() < self.size
    }
}

/// Those of a source that were put aside by a time and of which something is kept, after one.
pub(crate) fn kept_records(
    tx: &mut Tx<'_>,
    project: ProjectId,
    source: &FeatureName,
    by: Timestamp,
    (after, limit): (&str, usize),
) -> Result<Vec<Kept>> {
    let rows = tx.query(
        "SELECT id, size, record FROM feature_quarantine
         WHERE project = $1 AND source = $2 AND id > $3 AND at <= $4 AND record IS NOT NULL
         ORDER BY id LIMIT $5",
        &params![project, source.as_str(), after, by, limit],
    )?;
    let read = |row: &Row| {
        Ok(Kept { id: row.get("id")?, size: row.get("size")?, record: row.get("record")? })
    };
    rows.iter().map(read).collect()
}

/// Overwrites the content of some records, and the reason, which may quote it; tells how many.
pub(crate) fn overwrite(tx: &mut Tx<'_>, ids: &[String]) -> Result<u64> {
    let mut changed = 0;
    for id in ids {
        changed += tx.execute(
            "UPDATE feature_quarantine SET record = NULL, size = 0, reason = $2 WHERE id = $1",
            &params![id, "its content was erased with an entity"],
        )?;
    }
    Ok(changed)
}

/// Forgets those that were put aside before a time; tells how many.
pub(super) fn trim(tx: &mut Tx<'_>, before: Timestamp) -> Result<u64> {
    tx.execute("DELETE FROM feature_quarantine WHERE at < $1", &params![before])
}

fn read(row: &Row) -> Result<Quarantined> {
    let source: String = row.get("source")?;
    let bytes: Option<Vec<u8>> = row.get("record")?;
    let size: i64 = row.get("size")?;
    let kept = bytes.as_ref().map_or(0, Vec::len);
    let text = bytes.as_ref().and_then(|bytes| text(bytes));
    let coded = match &text {
        None => bytes.map(|bytes| STANDARD.encode(bytes)),
        Some(_) => None,
    };
    Ok(Quarantined {
        id: row.get("id")?,
        source: FeatureName::new(source).map_err(Error::internal)?,
        place: row.get("place")?,
        partition: row.get("part")?,
        offset: row.get("at_offset")?,
        at: row.get("at")?,
        reason: row.get("reason")?,
        size,
        record: text,
        record_base64: coded,
        truncated: i64::try_from(kept).is_ok_and(|kept| kept < size),
    })
}

/// Bytes as text, a sign that was cut at the end left out.
fn text(bytes: &[u8]) -> Option<String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text.to_owned()),
        Err(error) if error.error_len().is_none() => {
            String::from_utf8(bytes[..error.valid_up_to()].to_vec()).ok()
        }
        Err(_) => None,
    }
}
