//! The log of pushed rows: a table that only grows at its end, in the order of commits.

use arrow_array::{BooleanArray, RecordBatch};
use falaj_base::{Error, Result, Timestamp, code};
use falaj_store::backup::Renumber;
use falaj_store::db::{Row, Tx, Value, params};

use super::rows::{Rows, decode, filtered};
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

/// What was taken off the log: up to which place, and how often. What waits to be gathered, and what
/// waits to be taken off, is found without looking at the rest.
pub(crate) const TRIMMED: &str = "
    CREATE TABLE feature_log_trim (
        id INTEGER PRIMARY KEY, tx INTEGER NOT NULL, seq INTEGER NOT NULL, times INTEGER NOT NULL);
    INSERT INTO feature_log_trim (id, tx, seq, times)
        SELECT 1, 0, 0, 0 WHERE EXISTS (SELECT 1 FROM feature_segment);
    CREATE INDEX feature_log_loose ON feature_log (view, at, size) WHERE segment IS NULL;
    CREATE INDEX feature_log_gathered ON feature_log (at, tx, seq) WHERE segment IS NOT NULL;";

/// What a backup of PostgreSQL writes anew: the log keeps its order, and what was taken off it was
/// before everything that is there.
pub const RENUMBERED: &[Renumber] = &[
    ("feature_log_trim", "tx", "CAST(0 AS BIGINT)"),
    ("feature_log_trim", "seq", "CAST(0 AS BIGINT)"),
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

/// How far the log was taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trimmed {
    /// Nothing that was taken off lies behind this place.
    pub(crate) until: Position,
    /// Another number whenever something was taken off.
    pub(crate) times: i64,
}

/// How far the log was taken off; none if it never was.
pub(crate) fn trimmed(tx: &mut Tx<'_>) -> Result<Option<Trimmed>> {
    let sql = "SELECT tx, seq, times FROM feature_log_trim WHERE id = 1";
    let read = |row: Row| Ok(Trimmed { until: position(&row)?, times: row.get("times")? });
    tx.query_opt(sql, &[])?.map(read).transpose()
}

/// Takes pushes off the log that are in files since before a time, some of them; tells how many. The
/// last of all stays, since the next one is numbered after it.
pub(super) fn trim(tx: &mut Tx<'_>, before: Timestamp, most: usize) -> Result<u64> {
    tx.lock("feature-log-trim")?;
    let last = end(tx)?;
    let old = tx.query(
        "SELECT tx, seq FROM feature_log
         WHERE segment IS NOT NULL AND at < $1 AND (tx, seq) < ($2, $3)
         ORDER BY at, tx, seq LIMIT $4",
        &params![before, last.tx, last.seq, most],
    )?;
    let places = old.iter().map(position).collect::<Result<Vec<_>>>()?;
    let Some(furthest) = places.iter().max().copied() else { return Ok(0) };
    let known = trimmed(tx)?;
    let until = known.map_or(furthest, |known| known.until.max(furthest));
    tx.execute(
        "INSERT INTO feature_log_trim (id, tx, seq, times) VALUES (1, $1, $2, 1)
         ON CONFLICT (id) DO UPDATE SET tx = excluded.tx, seq = excluded.seq,
             times = feature_log_trim.times + 1",
        &params![until.tx, until.seq],
    )?;
    let gone = places.iter().map(|place| params![place.tx, place.seq].to_vec());
    tx.execute_many("DELETE FROM feature_log WHERE tx = $1 AND seq = $2", gone)
}

/// The rows of a push that are kept, as it is kept; none if all are.
pub(crate) fn without(batch: &RecordBatch, keep: &BooleanArray) -> Result<Option<Vec<u8>>> {
    filtered(batch, keep)
}

/// Puts fewer rows in the place of a push's; false if it is not as it was read any more.
pub(crate) fn replace(tx: &mut Tx<'_>, entry: &Entry, rows: u64, bytes: &[u8]) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE feature_log SET batch = $3, rows = $4, size = $5
         WHERE tx = $1 AND seq = $2 AND rows = $6 AND size = $7",
        &params![
            entry.position.tx,
            entry.position.seq,
            bytes,
            rows,
            bytes.len(),
            entry.rows,
            entry.size()
        ],
    )?;
    Ok(changed == 1)
}

/// Refuses rows for a version of a view that is not the latest any more: they would be found by
/// nobody who asks for the view.
pub(crate) fn require_latest(tx: &mut Tx<'_>, version: VersionId) -> Result<()> {
    let found = tx.query_opt(
        "SELECT v.id FROM feature_version AS v JOIN feature_definition AS d
             ON d.project = v.project AND d.noun = v.noun AND d.name = v.name
                 AND d.latest = v.version
         WHERE v.id = $1",
        &params![version],
    )?;
    if found.is_some() {
        return Ok(());
    }
    Err(Error::new(&code::CHANGED, "the feature view has a newer version"))
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

/// The places after this one, so many at most, as far as [`read_since`] goes.
pub(crate) fn places_since(tx: &mut Tx<'_>, after: Position, most: usize) -> Result<Vec<Position>> {
    let horizon = tx.horizon()?;
    let rows = tx.query(
        "SELECT tx, seq FROM feature_log WHERE (tx, seq) > ($1, $2) AND tx < $3
         ORDER BY tx, seq LIMIT $4",
        &params![after.tx, after.seq, horizon, most],
    )?;
    rows.iter().map(position).collect()
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
