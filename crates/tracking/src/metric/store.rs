//! The tables of points: writing what was logged, reading histories, deleting.
//!
//! What a request logs becomes one row of `metric_log`, whatever the number of its keys; long
//! series go straight into `metric_chunk`. Compaction moves the log into chunks. A history is both
//! together, without duplicates.
//!
//! Must hold: the log is read before the chunks. Outside a snapshot a compaction may commit
//! between the two, and what it moved must be seen twice rather than never.

use std::borrow::Cow;
use std::collections::BTreeMap;

use falaj_base::id::frequent;
use falaj_base::{Error, Result};
use falaj_store::db::{Row, Tx, Value, params};

use super::chart;
use super::codec;
use super::history::{HistoryCursor, HistoryPage, Steps, in_step_order, in_time_order};
use super::latest::{self, Latest};
use super::point::Point;
use super::sample::Sampling;
use crate::run::{RunId, touch};

/// The most points of a chunk: large enough that its row costs nothing beside them, small enough
/// that a page does not decode much more than it shows.
pub const CHUNK_POINTS: usize = 4096;
/// From this many points on a series is a chunk from the start.
pub const DIRECT_CHUNK_POINTS: usize = 256;
/// The most chunks and log rows one transaction deletes.
const DELETED_AT_ONCE: usize = 1024;

/// The points come last in their tables: SQLite then finds the other columns without following
/// them over their pages. `metric_chunk_open` lists the chunks that may still grow; its 4096 is
/// [`CHUNK_POINTS`].
pub(crate) const SCHEMA: &str = "
    CREATE TABLE metric_log (
        run BLOB NOT NULL, id BLOB NOT NULL, points BLOB NOT NULL,
        PRIMARY KEY (run, id)) CLUSTERED;
    CREATE TABLE metric_chunk (
        run BLOB NOT NULL, key INTEGER NOT NULL, id BLOB NOT NULL, count INTEGER NOT NULL,
        first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
        first_time INTEGER NOT NULL, last_time INTEGER NOT NULL, points BLOB NOT NULL,
        PRIMARY KEY (run, key, id)) CLUSTERED;
    CREATE INDEX metric_chunk_open ON metric_chunk (run, key, id, count) WHERE count < 4096;
    CREATE TABLE latest_metric (
        run BLOB NOT NULL, key INTEGER NOT NULL, value REAL, step INTEGER NOT NULL,
        timestamp INTEGER NOT NULL, min REAL, max REAL, PRIMARY KEY (run, key)) CLUSTERED;
    CREATE INDEX latest_metric_key ON latest_metric (key, run);";

/// What a call of [`append`] left behind, for whoever decides when to compact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "tell the compactor after the commit, or the log grows until the next sweep"]
pub struct Appended {
    /// Rows in the log: one or none.
    pub rows: usize,
    /// The points and the keys of those rows.
    pub points: usize,
    pub keys: usize,
    /// Series that became chunks at once.
    pub chunks: usize,
}

/// Writes new points of one run, by the number of their key, marks it as changed, and brings the latest
/// values up to date. What the caller bounds, this bounds: the points of one request.
pub fn append(
    tx: &mut Tx<'_>,
    (run, experiment): (RunId, i64),
    series: &[(i64, Vec<Point>)],
) -> Result<Appended> {
    let series = tidy(series);
    let (long, short): (Vec<_>, Vec<_>) =
        series.iter().partition(|(_, points)| points.len() >= DIRECT_CHUNK_POINTS);
    let mut appended = Appended { chunks: long.len(), keys: short.len(), ..Appended::default() };
    for (key, points) in long {
        insert_chunks(tx, run, *key, points)?;
    }
    if !short.is_empty() {
        appended.rows = 1;
        appended.points = short.iter().map(|(_, points)| points.len()).sum();
        let row = codec::encode_log_row(short.iter().map(|(key, points)| (*key, &points[..])));
        let version = tx.stamp()?;
        tx.put(
            "INSERT INTO metric_log (run, id, version, experiment, points) VALUES ($1, $2, $3, $4, $5)",
            &params![run, new_id(), version, experiment, row],
        )?;
    } else if !series.is_empty() {
        touch::note(tx, run, experiment)?;
    }
    let rows: Vec<_> = series
        .iter()
        .filter_map(|(key, points)| Latest::fold(points).map(|latest| (*key, latest)))
        .collect();
    latest::upsert(tx, run, &rows)?;
    Ok(appended)
}

/// Each key once, in rising order; its points in time order, each once.
fn tidy(series: &[(i64, Vec<Point>)]) -> Vec<(i64, Cow<'_, [Point]>)> {
    let mut tidied: Vec<_> = series
        .iter()
        .filter(|(_, points)| !points.is_empty())
        .map(|(key, points)| (*key, Cow::from(points)))
        .collect();
    tidied.sort_by_key(|(key, _)| *key);
    tidied.dedup_by(|(key, points), (kept, all)| {
        let same = key == kept;
        if same {
            all.to_mut().extend_from_slice(points);
        }
        same
    });
    for (_, points) in &mut tidied {
        if !points.is_sorted_by(|a, b| a.by_time(b).is_lt()) {
            *points = Cow::Owned(in_time_order(std::mem::take(points).into_owned()));
        }
    }
    tidied
}

fn new_id() -> Value {
    Value::Blob(frequent().into_bytes().to_vec())
}

/// Writes points in time order as chunks, none larger than it may be.
pub(super) fn insert_chunks(tx: &mut Tx<'_>, run: RunId, key: i64, points: &[Point]) -> Result<()> {
    for points in points.chunks(CHUNK_POINTS) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let steps = points.iter().map(Point::step);
        let (low, high) =
            steps.fold((i64::MAX, i64::MIN), |(low, high), step| (low.min(step), high.max(step)));
        tx.put(
            "INSERT INTO metric_chunk
                 (run, key, id, count, first_step, last_step, first_time, last_time, points)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &[
                run.into(),
                key.into(),
                new_id(),
                points.len().into(),
                low.into(),
                high.into(),
                first.timestamp().into(),
                last.timestamp().into(),
                codec::encode_chunk(points).into(),
            ],
        )?;
    }
    Ok(())
}

/// A metric's points within `steps`, in time order.
pub fn history(tx: &mut Tx<'_>, run: RunId, key: i64, steps: Steps) -> Result<Vec<Point>> {
    let logged = logged(tx, run, key)?;
    behind(tx, (run, key), steps, logged)
}

/// The same, with what the log holds of it.
fn behind(
    tx: &mut Tx<'_>,
    (run, key): (RunId, i64),
    steps: Steps,
    logged: Vec<Point>,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    tx.scan(
        "SELECT points FROM metric_chunk
         WHERE run = $1 AND key = $2 AND last_step >= $3 AND first_step <= $4 ORDER BY id",
        &params![run, key, steps.first, steps.last],
        |row| decode_chunk(row, &mut points),
    )?;
    // What is in the log is mostly younger than what is in chunks.
    points.extend(logged);
    if steps != Steps::ALL {
        points.retain(|point| steps.contains(point.step()));
    }
    Ok(in_time_order(points))
}

/// Each of these metrics of a run, whole and in time order, one after the other. The log is read
/// once, however many metrics there are.
pub fn each_history(
    tx: &mut Tx<'_>,
    run: RunId,
    keys: &[i64],
    mut each: impl FnMut(i64, Vec<Point>),
) -> Result<()> {
    let mut logged: BTreeMap<i64, Vec<Point>> = BTreeMap::new();
    tx.scan("SELECT points FROM metric_log WHERE run = $1 ORDER BY id", &params![run], |row| {
        for section in codec::log_row(&blob(row)?)? {
            let (key, series) = section?;
            series.decode_into(logged.entry(key).or_default());
        }
        Ok(())
    })?;
    for key in keys {
        let mut points = Vec::new();
        tx.scan(
            "SELECT points FROM metric_chunk WHERE run = $1 AND key = $2 ORDER BY id",
            &params![run, *key],
            |row| decode_chunk(row, &mut points),
        )?;
        points.extend(logged.remove(key).unwrap_or_default());
        each(*key, in_time_order(points));
    }
    Ok(())
}

/// At most `max` points of a metric within `steps`, in step order.
pub fn sampled_history(
    tx: &mut Tx<'_>,
    (run, key): (RunId, i64),
    steps: Steps,
    max: usize,
    sampling: Sampling,
) -> Result<Vec<Point>> {
    let logged = logged(tx, run, key)?;
    if sampling == Sampling::Even
        && let Some(points) = chart::sample(tx, (run, key), steps, max, &logged)?
    {
        return Ok(points);
    }
    let points = in_step_order(behind(tx, (run, key), steps, logged)?);
    Ok(sampling.apply(points, max))
}

/// A page of a metric's points, in time order. Costs the same however deep it is: only chunks
/// that may hold points of the page are read.
pub fn history_page(
    tx: &mut Tx<'_>,
    run: RunId,
    key: i64,
    after: Option<HistoryCursor>,
    limit: usize,
) -> Result<HistoryPage> {
    let after = after.map(|cursor| cursor.after());
    let is_new = |point: &Point| after.is_none_or(|after| after.by_time(point).is_lt());
    let mut points = logged(tx, run, key)?;
    points.retain(is_new);
    let chunks = tx.query(
        "SELECT id, first_time FROM metric_chunk
         WHERE run = $1 AND key = $2 AND last_time >= $3 ORDER BY first_time, id",
        &params![run, key, after.map_or(i64::MIN, |after| after.timestamp())],
    )?;
    for (at, chunk) in chunks.iter().enumerate() {
        // The points before the first of this and all further chunks are final.
        let bound: i64 = chunk.get("first_time")?;
        if at > 0 && points.len() > limit {
            points = in_time_order(points);
            let done = points.partition_point(|point| point.timestamp() < bound);
            if done > limit {
                points.truncate(done);
                return Ok(HistoryPage::cut(points, limit));
            }
        }
        let row = tx.query_one(
            "SELECT points FROM metric_chunk WHERE run = $1 AND key = $2 AND id = $3",
            &params![run, key, chunk.get::<Vec<u8>>("id")?],
        )?;
        let mut more = Vec::new();
        decode_chunk(row, &mut more)?;
        points.extend(more.into_iter().filter(is_new));
    }
    Ok(HistoryPage::cut(in_time_order(points), limit))
}

/// The beginnings of several histories: by run, each in time order, at most `max` points in all.
pub fn history_many(
    tx: &mut Tx<'_>,
    series: &[(RunId, i64)],
    max: usize,
) -> Result<Vec<(RunId, Vec<Point>)>> {
    let mut left = max;
    let mut found = Vec::new();
    for (run, key) in series.iter().copied().collect::<BTreeMap<_, _>>() {
        if left == 0 {
            break;
        }
        let points = history_page(tx, run, key, None, left)?.points;
        left -= points.len();
        found.push((run, points));
    }
    Ok(found)
}

/// What the log holds of one key; the other keys of its rows are passed over.
pub(super) fn logged(tx: &mut Tx<'_>, run: RunId, key: i64) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    tx.scan("SELECT points FROM metric_log WHERE run = $1 ORDER BY id", &params![run], |row| {
        for section in codec::log_row(&blob(row)?)? {
            let (found, series) = section?;
            if found == key {
                series.decode_into(&mut points);
            }
        }
        Ok(())
    })?;
    Ok(points)
}

pub(super) fn decode_chunk(row: Row, out: &mut Vec<Point>) -> Result<()> {
    codec::chunk(&blob(row)?)?.decode_into(out);
    Ok(())
}

/// The bytes of a row that has them last, without a copy.
pub(super) fn blob(row: Row) -> Result<Vec<u8>> {
    match row.into_values().pop() {
        Some(Value::Blob(bytes)) => Ok(bytes),
        other => Err(Error::internal(format!("points are kept as {other:?}"))),
    }
}

/// Deletes a run's points, as many as suit one transaction, and tells whether that was all. The
/// caller comes back until it was, in new transactions, and sees to it that nobody logs to the
/// run meanwhile.
#[must_use = "there may be more to delete"]
pub fn delete(tx: &mut Tx<'_>, run: RunId) -> Result<bool> {
    super::compact::lock(tx, run)?;
    let mut deleted = 0;
    for statement in [
        "DELETE FROM metric_log WHERE run = $1
         AND id IN (SELECT id FROM metric_log WHERE run = $1 LIMIT $2)",
        "DELETE FROM metric_chunk WHERE run = $1
         AND (key, id) IN (SELECT key, id FROM metric_chunk WHERE run = $1 LIMIT $2)",
    ] {
        deleted += tx.execute(statement, &params![run, DELETED_AT_ONCE])?;
    }
    tx.execute("DELETE FROM latest_metric WHERE run = $1", &params![run])?;
    Ok(deleted < DELETED_AT_ONCE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_knows_how_large_a_chunk_is() {
        assert!(SCHEMA.contains(&format!("WHERE count < {CHUNK_POINTS};")));
    }

    #[test]
    fn a_batch_is_tidied() {
        let point = |n| Point::new(n, n, 0.0);
        let batch = [
            (2, vec![point(3), point(1)]),
            (1, vec![point(1)]),
            (2, vec![point(1), point(2)]),
            (3, vec![]),
        ];
        let tidied: Vec<_> =
            tidy(&batch).into_iter().map(|(key, points)| (key, points.into_owned())).collect();
        assert_eq!(tidied, [(1, vec![point(1)]), (2, vec![point(1), point(2), point(3)])]);
    }
}
