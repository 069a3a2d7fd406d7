//! Console logs as rows: each a stretch of bytes, known by where it begins.

use falaj_base::{Error, Result};
use falaj_store::db::{Row, Tx, Value, params};

use crate::run::RunId;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE run_console (
        run BLOB NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL, bytes BLOB NOT NULL,
        PRIMARY KEY (run, start)) CLUSTERED;";

/// A row grows up to this: large enough that a long log is few rows, small enough to be written
/// again with each piece that joins it.
const ROW: usize = 64 << 10;
/// The most rows that one transaction deletes.
const DELETED_AT_ONCE: usize = 64;

/// How long the log is.
pub(crate) fn length(tx: &mut Tx<'_>, run: RunId) -> Result<u64> {
    let row = tx.query_opt(
        "SELECT start, size FROM run_console WHERE run = $1 ORDER BY start DESC LIMIT 1",
        &params![run],
    )?;
    row.map_or(Ok(0), |row| Ok(row.get::<u64>("start")? + row.get::<u64>("size")?))
}

/// Adds bytes at the end, which is `length`.
pub(super) fn append(tx: &mut Tx<'_>, run: RunId, length: u64, bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    let mut start = length;
    let last = tx.query_opt(
        "SELECT start, size, bytes FROM run_console WHERE run = $1 AND size < $2
         ORDER BY start DESC LIMIT 1",
        &params![run, ROW],
    )?;
    if let Some(last) = last {
        let (from, mut kept) = (last.get::<u64>("start")?, last.get::<Vec<u8>>("bytes")?);
        // A short row in the middle of the log stays short.
        if from + kept.len() as u64 == length {
            let (joins, after) = rest.split_at(rest.len().min(ROW - kept.len()));
            kept.extend_from_slice(joins);
            (rest, start) = (after, length + joins.len() as u64);
            tx.execute(
                "UPDATE run_console SET size = $3, bytes = $4 WHERE run = $1 AND start = $2",
                &params![run, from, kept.len(), kept],
            )?;
        }
    }
    for piece in rest.chunks(ROW) {
        tx.execute(
            "INSERT INTO run_console (run, start, size, bytes) VALUES ($1, $2, $3, $4)",
            &params![run, start, piece.len(), piece],
        )?;
        start += piece.len() as u64;
    }
    Ok(())
}

/// The bytes from `from` on, at most `limit` of them.
pub(crate) fn read(tx: &mut Tx<'_>, run: RunId, from: u64, limit: usize) -> Result<Vec<u8>> {
    let end = from.saturating_add(limit as u64).min(i64::MAX as u64);
    let mut found = Vec::new();
    tx.scan(
        "SELECT start, bytes FROM run_console
         WHERE run = $1 AND start >= $2 AND start < $3 ORDER BY start",
        &params![run, from.saturating_sub(ROW as u64), end],
        |row| {
            let (start, bytes) = piece(row)?;
            let skip = usize::try_from(from.saturating_sub(start)).map_err(Error::internal)?;
            if let Some(bytes) = bytes.get(skip..) {
                let room = limit.saturating_sub(found.len()).min(bytes.len());
                found.extend_from_slice(&bytes[..room]);
            }
            Ok(())
        },
    )?;
    Ok(found)
}

fn piece(row: Row) -> Result<(u64, Vec<u8>)> {
    match &mut row.into_values()[..] {
        [Value::Int(start), Value::Blob(bytes)] => {
            Ok((u64::try_from(*start).map_err(Error::internal)?, std::mem::take(bytes)))
        }
        _ => Err(Error::internal("a piece of a log has an unexpected shape")),
    }
}

/// Deletes some of a log, and tells whether that was all.
#[must_use = "there may be more to delete"]
pub(crate) fn delete(tx: &mut Tx<'_>, run: RunId) -> Result<bool> {
    let gone = tx.execute(
        "DELETE FROM run_console WHERE run = $1
         AND start IN (SELECT start FROM run_console WHERE run = $1 ORDER BY start LIMIT $2)",
        &params![run, DELETED_AT_ONCE],
    )?;
    Ok(gone < DELETED_AT_ONCE as u64)
}
