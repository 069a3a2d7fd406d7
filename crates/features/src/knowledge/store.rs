//! What is known, in the database.

use falaj_base::{BlobId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};
use falaj_store::objects::Objects;

use crate::definition::VersionId;
use crate::history::Position;

/// How fresh a version of a view was when it was last looked at, up to which place of the log it was
/// looked through, and since when it is too old. Statistics lie in a blob: they tell of values.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_freshness (
        view INTEGER PRIMARY KEY, newest_event INTEGER, newest_known INTEGER,
        tx INTEGER NOT NULL, seq INTEGER NOT NULL, checked_at INTEGER NOT NULL,
        read_at INTEGER NOT NULL, took INTEGER NOT NULL, stale_since INTEGER);
    CREATE TABLE feature_statistics (
        view INTEGER PRIMARY KEY, rows INTEGER NOT NULL, blob TEXT NOT NULL,
        at INTEGER NOT NULL, made_by TEXT NOT NULL);
    CREATE TABLE feature_skew (
        view INTEGER PRIMARY KEY, at INTEGER NOT NULL, compared INTEGER NOT NULL,
        mismatches INTEGER NOT NULL, above INTEGER NOT NULL);";

/// How a blob knows that it holds the statistics of a view.
pub(super) const STATISTICS: &str = "feature-statistics";

/// How fresh a view was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) newest_event: Option<Timestamp>,
    pub(super) newest_known: Option<Timestamp>,
    /// Up to which place of the log it was looked through.
    pub(super) position: Position,
    pub(super) checked_at: Timestamp,
    /// When all of it was read, and how many microseconds that took.
    pub(super) read_at: Timestamp,
    pub(super) took: i64,
    pub(super) stale_since: Option<Timestamp>,
}

pub(super) fn seen(tx: &mut Tx<'_>, view: VersionId) -> Result<Option<Seen>> {
    let row = tx.query_opt(
        "SELECT newest_event, newest_known, tx, seq, checked_at, read_at, took, stale_since
         FROM feature_freshness WHERE view = $1",
        &params![view],
    )?;
    let read = |row: &Row| {
        Ok(Seen {
            newest_event: row.get("newest_event")?,
            newest_known: row.get("newest_known")?,
            position: Position { tx: row.get("tx")?, seq: row.get("seq")? },
            checked_at: row.get("checked_at")?,
            read_at: row.get("read_at")?,
            took: row.get("took")?,
            stale_since: row.get("stale_since")?,
        })
    };
    row.as_ref().map(read).transpose()
}

pub(super) fn put_seen(tx: &mut Tx<'_>, view: VersionId, seen: &Seen) -> Result<()> {
    tx.execute(
        "INSERT INTO feature_freshness (view, newest_event, newest_known, tx, seq, checked_at,
             read_at, took, stale_since)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (view) DO UPDATE SET newest_event = excluded.newest_event,
             newest_known = excluded.newest_known, tx = excluded.tx, seq = excluded.seq,
             checked_at = excluded.checked_at, read_at = excluded.read_at,
             took = excluded.took, stale_since = excluded.stale_since",
        &params![
            view,
            seen.newest_event,
            seen.newest_known,
            seen.position.tx,
            seen.position.seq,
            seen.checked_at,
            seen.read_at,
            seen.took,
            seen.stale_since
        ],
    )
    .map(drop)
}

/// Statistics of a view as they were found.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) blob: BlobId,
    pub(super) at: Timestamp,
    pub(super) made_by: String,
}

pub(super) fn statistics(tx: &mut Tx<'_>, view: VersionId) -> Result<Option<Kept>> {
    let row = tx.query_opt(
        "SELECT blob, at, made_by FROM feature_statistics WHERE view = $1",
        &params![view],
    )?;
    let read = |row: &Row| {
        Ok(Kept { blob: row.get("blob")?, at: row.get("at")?, made_by: row.get("made_by")? })
    };
    row.as_ref().map(read).transpose()
}

pub(super) fn put_statistics(
    tx: &mut Tx<'_>,
    view: VersionId,
    rows: u64,
    kept: &Kept,
) -> Result<()> {
    tx.execute(
        "INSERT INTO feature_statistics (view, rows, blob, at, made_by)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (view) DO UPDATE SET rows = excluded.rows, blob = excluded.blob,
             at = excluded.at, made_by = excluded.made_by",
        &params![view, rows, kept.blob, kept.at, &kept.made_by],
    )
    .map(drop)
}

/// Drops what is known of the values of views, and looks for how fresh they are anew; tells how many
/// had statistics.
pub(crate) fn forget(tx: &mut Tx<'_>, views: &[VersionId]) -> Result<u64> {
    let mut dropped = 0;
    for view in views {
        tx.lock(&format!("{STATISTICS}/{view}"))?;
        if let Some(kept) = statistics(tx, *view)? {
            Objects::detach(tx, kept.blob, STATISTICS, &view.to_string())?;
            tx.execute("DELETE FROM feature_statistics WHERE view = $1", &params![*view])?;
            dropped += 1;
        }
        super::watch::forget(tx, *view)?;
        super::freshness::lock(tx, *view)?;
        let start = Position::START;
        tx.execute(
            "UPDATE feature_freshness SET newest_event = NULL, newest_known = NULL, tx = $2,
                 seq = $3, read_at = 0 WHERE view = $1",
            &params![*view, start.tx, start.seq],
        )?;
    }
    Ok(dropped)
}

/// Puts down what a comparison of both stores found; whether the one before was above its threshold.
pub(super) fn put_skew(
    tx: &mut Tx<'_>,
    view: VersionId,
    (compared, mismatches, above): (u64, u64, bool),
) -> Result<bool> {
    let before = tx
        .query_opt("SELECT above FROM feature_skew WHERE view = $1", &params![view])?
        .map(|row| row.get::<bool>("above"))
        .transpose()?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO feature_skew (view, at, compared, mismatches, above)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (view) DO UPDATE SET at = excluded.at, compared = excluded.compared,
             mismatches = excluded.mismatches, above = excluded.above",
        &params![view, now, compared, mismatches, above],
    )?;
    Ok(before.unwrap_or(false))
}

/// All latest versions of views of which something is said about freshness, with their projects.
pub(super) fn watched(tx: &mut Tx<'_>) -> Result<Vec<(falaj_base::ProjectId, String)>> {
    // The text is looked at again by whoever reads the definition; this only leaves out the most.
    let rows = tx.query(
        "SELECT project, name FROM feature_definition
         WHERE noun = 'view' AND about LIKE '%\"freshness\":%' ORDER BY project, name",
        &[],
    )?;
    rows.iter().map(|row| Ok((row.get("project")?, row.get("name")?))).collect()
}
