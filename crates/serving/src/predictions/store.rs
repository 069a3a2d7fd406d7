//! Files of predictions and outcomes as rows.

use std::collections::HashMap;
use std::time::Duration;

use falaj_base::{
    BlobId, EndpointId, Error, HumanDuration, ProjectId, Result, TenantId, Timestamp,
};
use falaj_store::db::{Row, Tx, Value, params};
use serde::Deserialize;
use uuid::Uuid;

use super::outcome::{Came, Outcome};

/// How a blob knows that a file of predictions refers to it.
pub(super) const CLAIM: &str = "prediction";

/// A file says from when to when its predictions are. Nothing refers to an endpoint in a way that
/// would keep it: what is left of one that is gone is swept away afterwards. An outcome may come
/// before its prediction is in a file, or without one: only a share of requests may be kept.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE prediction_file (
        id BLOB PRIMARY KEY, project TEXT NOT NULL, tenant TEXT NOT NULL, endpoint TEXT NOT NULL,
        from_at INTEGER NOT NULL, to_at INTEGER NOT NULL, rows INTEGER NOT NULL,
        size INTEGER NOT NULL, blob TEXT NOT NULL);
    CREATE INDEX prediction_file_time ON prediction_file (endpoint, to_at, id);
    CREATE TABLE prediction_outcome (
        endpoint TEXT NOT NULL, prediction BLOB NOT NULL, place INTEGER NOT NULL, value REAL,
        label TEXT, at INTEGER NOT NULL, PRIMARY KEY (endpoint, prediction, place)) CLUSTERED;
    CREATE INDEX prediction_outcome_at ON prediction_outcome (endpoint, at);";

/// A file of predictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub id: Uuid,
    /// When the first and the last of its predictions were made.
    pub from: Timestamp,
    pub to: Timestamp,
    pub rows: u64,
    pub size: u64,
    pub blob: BlobId,
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    project: ProjectId,
    tenant: TenantId,
    endpoint: EndpointId,
    file: &File,
) -> Result<()> {
    tx.execute(
        "INSERT INTO prediction_file
             (id, project, tenant, endpoint, from_at, to_at, rows, size, blob)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &params![
            &file.id.as_bytes()[..],
            project,
            tenant,
            endpoint,
            file.from,
            file.to,
            file.rows,
            file.size,
            file.blob,
        ],
    )
    .map(drop)
}

/// Files with predictions in a span of time, by when they end, after a place in that order.
pub(super) fn files(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    (from, to): (Timestamp, Timestamp),
    after: Option<(Timestamp, Uuid)>,
    limit: usize,
) -> Result<Vec<File>> {
    let (after_at, after_id) = after.unwrap_or((Timestamp::from_micros(i64::MIN), Uuid::nil()));
    let rows = tx.query(
        "SELECT id, from_at, to_at, rows, size, blob FROM prediction_file
         WHERE endpoint = $1 AND to_at >= $2 AND from_at < $3
             AND (to_at > $4 OR (to_at = $4 AND id > $5))
         ORDER BY to_at, id LIMIT $6",
        &params![endpoint, from, to, after_at, &after_id.as_bytes()[..], limit],
    )?;
    rows.iter().map(file).collect()
}

/// One file of an endpoint.
pub(super) fn find(tx: &mut Tx<'_>, endpoint: EndpointId, id: Uuid) -> Result<Option<File>> {
    let row = tx.query_opt(
        "SELECT id, from_at, to_at, rows, size, blob FROM prediction_file
         WHERE id = $1 AND endpoint = $2",
        &params![&id.as_bytes()[..], endpoint],
    )?;
    row.as_ref().map(file).transpose()
}

/// Files that end before a moment, the oldest first.
pub(super) fn ended_before(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<File>> {
    let rows = tx.query(
        "SELECT id, from_at, to_at, rows, size, blob FROM prediction_file
         WHERE endpoint = $1 AND to_at < $2 ORDER BY to_at, id LIMIT $3",
        &params![endpoint, before, limit],
    )?;
    rows.iter().map(file).collect()
}

/// Endpoints that have files, and whose they are.
pub(super) fn endpoints(tx: &mut Tx<'_>) -> Result<Vec<(EndpointId, TenantId, ProjectId)>> {
    let rows = tx.query(
        "SELECT DISTINCT endpoint, tenant, project FROM prediction_file ORDER BY endpoint",
        &[],
    )?;
    rows.iter()
        .map(|row| Ok((row.get("endpoint")?, row.get("tenant")?, row.get("project")?)))
        .collect()
}

/// How long endpoints keep their predictions that say so themselves.
pub(super) fn keeps(tx: &mut Tx<'_>) -> Result<HashMap<EndpointId, Duration>> {
    #[derive(Deserialize)]
    struct Keeps {
        keep_predictions: Option<HumanDuration>,
    }
    let sql = "SELECT id, spec FROM endpoint WHERE spec LIKE '%\"keep_predictions\"%'";
    let mut keeps = HashMap::new();
    for row in tx.query(sql, &[])? {
        let spec: String = row.get("spec")?;
        let said: Keeps = serde_json::from_str(&spec).map_err(Error::internal)?;
        if let Some(keep) = said.keep_predictions {
            keeps.insert(row.get("id")?, keep.get());
        }
    }
    Ok(keeps)
}

/// Whether the endpoint is still there.
pub(super) fn lives(tx: &mut Tx<'_>, endpoint: EndpointId) -> Result<bool> {
    let found = tx.query_opt("SELECT id FROM endpoint WHERE id = $1", &params![endpoint])?;
    Ok(found.is_some())
}

pub(super) fn delete(tx: &mut Tx<'_>, file: Uuid) -> Result<bool> {
    let gone =
        tx.execute("DELETE FROM prediction_file WHERE id = $1", &params![&file.as_bytes()[..]])?;
    Ok(gone == 1)
}

fn file(row: &Row) -> Result<File> {
    let id: Vec<u8> = row.get("id")?;
    Ok(File {
        id: uuid(&id)?,
        from: row.get("from_at")?,
        to: row.get("to_at")?,
        rows: row.get("rows")?,
        size: row.get("size")?,
        blob: row.get("blob")?,
    })
}

fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(Error::internal)
}

/// The outcomes that are known of some predictions.
pub(super) fn outcomes(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    predictions: &[Uuid],
) -> Result<HashMap<(Uuid, u32), Came>> {
    let mut found = HashMap::new();
    for some in predictions.chunks(500) {
        let places: Vec<_> = (2..some.len() + 2).map(|place| format!("${place}")).collect();
        let sql = format!(
            "SELECT prediction, place, value, label FROM prediction_outcome
             WHERE endpoint = $1 AND prediction IN ({})",
            places.join(", ")
        );
        let ids = some.iter().map(|id| Value::from(&id.as_bytes()[..]));
        let values: Vec<_> = std::iter::once(Value::from(endpoint)).chain(ids).collect();
        for row in tx.query(&sql, &values)? {
            found.extend(outcome(&row)?);
        }
    }
    Ok(found)
}

/// Which outcomes are wanted, in the order of their predictions and rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Only those of this one.
    pub prediction: Option<Uuid>,
    /// Only those behind this row of this prediction.
    pub after: Option<(Uuid, u32)>,
}

/// Some outcomes, and when each was reported.
pub(super) fn page_of_outcomes(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    wanted: Wanted,
    limit: usize,
) -> Result<Vec<(Outcome, Timestamp)>> {
    let (low, high) = match wanted.prediction {
        Some(only) => (only, only),
        None => (Uuid::nil(), Uuid::max()),
    };
    let after = wanted.after.map(|(prediction, row)| (prediction, i64::from(row)));
    let (after, row) = after.unwrap_or((low, -1)).max((low, -1));
    let rows = tx.query(
        "SELECT prediction, place, value, label, at FROM prediction_outcome
         WHERE endpoint = $1 AND (prediction, place) > ($2, $3) AND prediction <= $4
         ORDER BY prediction, place LIMIT $5",
        &params![endpoint, &after.as_bytes()[..], row, &high.as_bytes()[..], limit],
    )?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(((prediction, place), came)) = outcome(&row)? {
            found.push((Outcome { prediction, row: place, came }, row.get("at")?));
        }
    }
    Ok(found)
}

/// What came of which row of which prediction.
fn outcome(row: &Row) -> Result<Option<((Uuid, u32), Came)>> {
    let id: Vec<u8> = row.get("prediction")?;
    let place: i64 = row.get("place")?;
    let value: Option<f64> = row.get("value")?;
    let label: Option<String> = row.get("label")?;
    let came = value.map(Came::Value).or(label.map(Came::Label));
    let of = (uuid(&id)?, u32::try_from(place).unwrap_or(u32::MAX));
    Ok(came.map(|came| (of, came)))
}

/// Puts outcomes down, each in place of one that was reported before.
pub(super) fn put_outcomes(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    outcomes: &[Outcome],
) -> Result<()> {
    let now = tx.now();
    let rows = outcomes.iter().map(|outcome| {
        let (value, label) = match &outcome.came {
            Came::Value(value) => (Some(*value), None),
            Came::Label(label) => (None, Some(label.as_str())),
        };
        params![endpoint, &outcome.prediction.as_bytes()[..], outcome.row, value, label, now]
    });
    tx.execute_many(
        "INSERT INTO prediction_outcome (endpoint, prediction, place, value, label, at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (endpoint, prediction, place) DO UPDATE SET
             value = excluded.value, label = excluded.label, at = excluded.at",
        rows,
    )
    .map(drop)
}

/// Deletes some of the outcomes reported before a moment; tells whether there may be more.
pub(super) fn delete_outcomes(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    before: Timestamp,
    limit: usize,
) -> Result<bool> {
    // Up to the time of the last of so many: those reported together go together.
    let cut = tx.query_opt(
        "SELECT at FROM prediction_outcome WHERE endpoint = $1 AND at < $2
         ORDER BY at LIMIT 1 OFFSET $3",
        &params![endpoint, before, limit],
    )?;
    let cut: Option<Timestamp> = cut.map(|row| row.get("at")).transpose()?;
    let sql = "DELETE FROM prediction_outcome WHERE endpoint = $1 AND at < $2";
    match cut {
        Some(cut) => {
            let sql = "DELETE FROM prediction_outcome WHERE endpoint = $1 AND at <= $2";
            tx.execute(sql, &params![endpoint, cut])?;
            Ok(true)
        }
        None => tx.execute(sql, &params![endpoint, before]).map(|_| false),
    }
}

/// Endpoints that are there and have outcomes.
pub(super) fn with_outcomes(tx: &mut Tx<'_>) -> Result<Vec<EndpointId>> {
    let rows = tx.query(
        "SELECT id FROM endpoint AS e WHERE EXISTS
             (SELECT 1 FROM prediction_outcome AS o WHERE o.endpoint = e.id)",
        &[],
    )?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// Endpoints that have outcomes and are gone.
pub(super) fn outcomes_of_nobody(tx: &mut Tx<'_>) -> Result<Vec<EndpointId>> {
    let rows = tx.query(
        "SELECT DISTINCT endpoint FROM prediction_outcome
         WHERE endpoint NOT IN (SELECT id FROM endpoint)",
        &[],
    )?;
    rows.iter().map(|row| row.get("endpoint")).collect()
}
