//! Compaction: moves a run's log rows into chunks, one key each.
//!
//! Must hold: no point is lost and none appears, whoever else writes, reads or compacts the run
//! meanwhile. Rows are read by the statement that deletes them, so exactly what was deleted is
//! written again, in the same transaction.
//!
//! Chunks grow as in a log-structured tree: a new one takes in those before it that are not much
//! larger. So a point is rewritten a dozen times at most, not with every compaction that follows,
//! and a key has few chunks that are not full.

use std::collections::BTreeMap;

use falaj_base::Result;
use falaj_store::db::{Tx, params};

use super::codec;
use super::history::in_time_order;
use super::point::Point;
use super::store::{CHUNK_POINTS, blob, decode_chunk, insert_chunks};
use crate::run::RunId;
use crate::run::touch::{self, Logged};

/// The most log rows one transaction moves: on SQLite other writers wait for it.
pub const ROWS_AT_ONCE: usize = 512;
/// Sorts after every id of a log row: those have 16 bytes.
const BEYOND_IDS: &[u8] = &[u8::MAX; 17];
/// With more chunks than this that are not full, a key is compacted for that alone.
pub(super) const OPEN_CHUNKS: usize = 8;

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Log rows that were moved.
    pub rows: usize,
    /// Whether there may be more of them.
    pub more: bool,
    /// The run's last change: those before it are forgotten.
    pub settled: Option<i64>,
}

/// Lets one transaction at a time rearrange or delete a run's points. Logging does not take it.
pub(super) fn lock(tx: &mut Tx<'_>, run: RunId) -> Result<()> {
    tx.lock(&format!("metric/{run}"))
}

/// Moves log rows of a run into chunks and gathers small chunks. Changes of the run before `settled` are
/// known to be forgotten.
pub fn compact(tx: &mut Tx<'_>, run: RunId, settled: Option<i64>) -> Result<Compacted> {
    lock(tx, run)?;
    let Taken { rows, points: mut waiting, last } = take_log(tx, run)?;
    let mut open = open_chunks(tx, run)?;
    for key in open.keys().copied().collect::<Vec<_>>() {
        waiting.entry(key).or_default();
    }
    for (key, mut points) in waiting {
        let mut chunks = open.remove(&key).unwrap_or_default();
        while let Some(chunk) = chunks.last()
            && (chunk.count <= 2 * points.len() || chunks.len() > OPEN_CHUNKS)
        {
            take_chunk(tx, run, key, &chunk.id, &mut points)?;
            chunks.pop();
        }
        insert_chunks(tx, run, key, &in_time_order(points))?;
    }
    let settled = touch::settle(tx, run, settled, last)?;
    Ok(Compacted { rows, more: rows == ROWS_AT_ONCE, settled })
}

/// What was in log rows that are removed.
#[derive(Default)]
struct Taken {
    rows: usize,
    /// By key.
    points: BTreeMap<i64, Vec<Point>>,
    /// The last change that they told of.
    last: Option<Logged>,
}

/// Removes the oldest log rows.
fn take_log(tx: &mut Tx<'_>, run: RunId) -> Result<Taken> {
    let mut taken = Taken::default();
    tx.scan(
        // A range, which either engine walks through: looking each id up took half as long again.
        "DELETE FROM metric_log WHERE run = $1 AND id < COALESCE(
             (SELECT id FROM metric_log WHERE run = $1 ORDER BY id LIMIT 1 OFFSET $2), $3)
         RETURNING version, experiment, points",
        &params![run, ROWS_AT_ONCE, BEYOND_IDS],
        |row| {
            taken.rows += 1;
            let told = Logged { version: row.get("version")?, experiment: row.get("experiment")? };
            taken.last = taken.last.max(Some(told).filter(|told| told.version > 0));
            for section in codec::log_row(&blob(row)?)? {
                let (key, series) = section?;
                series.decode_into(taken.points.entry(key).or_default());
            }
            Ok(())
        },
    )?;
    Ok(taken)
}

struct OpenChunk {
    id: Vec<u8>,
    count: usize,
}

/// The chunks that are not full, by key, oldest first.
fn open_chunks(tx: &mut Tx<'_>, run: RunId) -> Result<BTreeMap<i64, Vec<OpenChunk>>> {
    let mut open: BTreeMap<i64, Vec<OpenChunk>> = BTreeMap::new();
    // The number stands in the text: as a parameter it would keep the index from being used.
    let sql = const {
        "SELECT key, id, count FROM metric_chunk
         WHERE run = $1 AND count < 4096 ORDER BY key, id"
    };
    debug_assert!(sql.contains(&CHUNK_POINTS.to_string()));
    tx.scan(sql, &params![run], |row| {
        let chunk = OpenChunk { id: row.get("id")?, count: row.get("count")? };
        open.entry(row.get("key")?).or_default().push(chunk);
        Ok(())
    })?;
    Ok(open)
}

fn take_chunk(
    tx: &mut Tx<'_>,
    run: RunId,
    key: i64,
    id: &[u8],
    points: &mut Vec<Point>,
) -> Result<()> {
    let row = tx.query_one(
        "DELETE FROM metric_chunk WHERE run = $1 AND key = $2 AND id = $3 RETURNING points",
        &params![run, key, id],
    )?;
    decode_chunk(row, points)
}
