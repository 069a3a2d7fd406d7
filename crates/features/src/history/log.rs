//! The log of pushed rows: a table that only grows at its end, in the order of commits.

use arrow_array::RecordBatch;
use falaj_base::{Result, Timestamp};
use falaj_store::backup::Renumber;
use falaj_store::db::{Row, Tx, Value, params};

use super::rows::{Rows, decode};
use crate::definition::VersionId;

/// A push is one row: the batch as it came. `segment` names the file that has its rows as well,
/// once there is one. The files of a view are numbered in the order of their rows.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_log (
        tx INTEGER NOT NULL, seq INTEGER NOT NULL, view INTEGER NOT NULL, at INTEGER NOT NULL,
        rows INTEGER NOT NULL, size INTEGER NOT NULL, segment TEXT, batch BLOB NOT NULL,
        PRIMARY KEY (tx, seq));
    CREATE INDEX feature_log_view ON feature_log (view, tx, seq);
    CREATE TABLE feature_segment (
        id TEXT PRIMARY KEY, view INTEGER NOT NULL, number INTEGER NOT NULL, tenant TEXT NOT NULL,
        rows INTEGER NOT NULL, size INTEGER NOT NULL, blob TEXT NOT NULL,
        created_at INTEGER NOT NULL, UNIQUE (view, number));";

/// What a backup of PostgreSQL writes anew: the log keeps its order.
pub const RENUMBERED: &[Renumber] = &[
    ("feature_log", "tx", "CAST(0 AS BIGINT)"),
    ("feature_log", "seq", "row_number() OVER (ORDER BY tx, seq)"),
];

/// A place in the log. Later commits have greater ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub tx: i64,
    pub seq: i64,
}

impl Position {
    /// Before everything.
    pub const START: Self = Self { tx: -1, seq: 0 };
    /// After everything.
    pub const END: Self = Self { tx: i64::MAX, seq: i64::MAX };
}

/// A push as it was kept.
#[derive(Clone, Debug)]
pub struct Entry {
    pub position: Position,
    pub view: VersionId,
    /// Since when its rows are known: the server's time of the push.
    pub at: Timestamp,
    pub rows: u64,
    bytes: Vec<u8>,
}

impl Entry {
    pub fn batch(&self) -> Result<RecordBatch> {
        decode(&self.bytes)
    }

    /// How much memory its rows take, written out.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Appends rows in the caller's transaction; tells their place, and since when they are known.
pub fn append(tx: &mut Tx<'_>, rows: &Rows) -> Result<(Position, Timestamp)> {
    let (number, seq) = tx.next_position()?;
    let now = tx.now();
    let row = tx.query_one(
        "INSERT INTO feature_log (tx, seq, view, at, rows, size, segment, batch)
         VALUES ($1, COALESCE($2, (SELECT COALESCE(MAX(seq), 0) + 1 FROM feature_log
                                   WHERE tx = 0)), $3, $4, $5, $6, NULL, $7)
         RETURNING seq",
        &params![
            number,
            seq,
            rows.view(),
            now,
            rows.batch().num_rows(),
            rows.bytes().len(),
            rows.bytes()
        ],
    )?;
    Ok((Position { tx: number, seq: row.get("seq")? }, now))
}

const COLUMNS: &str = "tx, seq, view, at, rows, batch";

/// How many pushes are read at a time at most, and about how many bytes of them.
const PAGE: usize = 1000;
const PAGE_BYTES: u64 = 32 << 20;

/// Pushes to all views after a place, in order: the next of them, none at the end. One that is
/// still being committed is not passed over: reading stops before it.
pub fn read_since(tx: &mut Tx<'_>, after: Position) -> Result<Vec<Entry>> {
    page(tx, None, after, Position::END, false)
}

/// The same of one version of a view, up to a place and including it. With `loose`, only what is in
/// no file yet.
pub fn read_view(
    tx: &mut Tx<'_>,
    view: VersionId,
    after: Position,
    until: Position,
    loose: bool,
) -> Result<Vec<Entry>> {
    page(tx, Some(view), after, until, loose)
}

fn page(
    tx: &mut Tx<'_>,
    view: Option<VersionId>,
    after: Position,
    until: Position,
    loose: bool,
) -> Result<Vec<Entry>> {
    let horizon = tx.horizon()?;
    let of = if view.is_some() { "AND view = $6" } else { "" };
    let only = if loose { "AND segment IS NULL" } else { "" };
    let which = format!(
        "FROM feature_log WHERE (tx, seq) > ($1, $2) AND (tx, seq) <= ($3, $4) AND tx < $5
             {of} {only} ORDER BY tx, seq"
    );
    let values = |until: Position| {
        let mut values = params![after.tx, after.seq, until.tx, until.seq, horizon].to_vec();
        values.extend(view.map(Value::from));
        values
    };
    // How far the budget reaches, before anything large is read.
    let sizes = tx.query(&format!("SELECT tx, seq, size {which} LIMIT {PAGE}"), &values(until))?;
    let (mut bytes, mut last) = (0, None);
    for row in &sizes {
        bytes += row.get::<u64>("size")?;
        if last.is_some() && bytes > PAGE_BYTES {
            break;
        }
        last = Some(position(row)?);
    }
    let Some(last) = last else { return Ok(Vec::new()) };
    let rows = tx.query(&format!("SELECT {COLUMNS} {which}"), &values(last))?;
    rows.iter().map(read).collect()
}

/// The last place that is settled; everything up to it can be read.
pub fn end(tx: &mut Tx<'_>) -> Result<Position> {
    let horizon = tx.horizon()?;
    let row = tx.query_opt(
        "SELECT tx, seq FROM feature_log WHERE tx < $1 ORDER BY tx DESC, seq DESC LIMIT 1",
        &params![horizon],
    )?;
    row.as_ref().map_or(Ok(Position::START), position)
}

fn position(row: &Row) -> Result<Position> {
    Ok(Position { tx: row.get("tx")?, seq: row.get("seq")? })
}

fn read(row: &Row) -> Result<Entry> {
    Ok(Entry {
        position: position(row)?,
        view: row.get("view")?,
        at: row.get("at")?,
        rows: row.get("rows")?,
        bytes: row.get("batch")?,
    })
}
