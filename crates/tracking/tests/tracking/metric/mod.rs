//! The tables of points, on both engines.

mod chart;
mod compaction;
mod model;
mod reading;

use falaj_base::Result;
use falaj_store::db::{Db, params};
use falaj_tracking::RunId;
use falaj_tracking::metric::compact::{Compacted, compact};
use falaj_tracking::metric::history::Steps;
use falaj_tracking::metric::store::{self, Appended};
use falaj_tracking::metric::{Latest, Point};
use uuid::Uuid;

/// The `n`th run. Random enough for an id, and in the order of `n`.
fn run(n: u128) -> RunId {
    RunId(Uuid::from_u128(n << 64 | 0x8000_0000_0000_0000))
}

fn point(n: i64) -> Point {
    Point::new(1_700_000_000_000 + 100 * n, n, f64::from(i32::try_from(n).unwrap_or(0)) / 3.0)
}

fn points(range: std::ops::Range<i64>) -> Vec<Point> {
    range.map(point).collect()
}

async fn append(db: &Db, run: RunId, series: Vec<(i64, Vec<Point>)>) -> Appended {
    db.write(move |tx| store::append(tx, (run, 1), &series)).await.expect("appending")
}

/// Logs points one by one, as most clients do.
async fn log(db: &Db, run: RunId, key: i64, points: &[Point]) {
    for point in points {
        let _ = append(db, run, vec![(key, vec![*point])]).await;
    }
}

async fn history(db: &Db, run: RunId, key: i64) -> Vec<Point> {
    try_history(db, run, key).await.expect("a history")
}

async fn try_history(db: &Db, run: RunId, key: i64) -> Result<Vec<Point>> {
    db.read(move |tx| store::history(tx, run, key, Steps::ALL)).await
}

async fn latest(db: &Db, runs: Vec<RunId>) -> Vec<(RunId, i64, Latest)> {
    db.read(move |tx| falaj_tracking::metric::latest::latest(tx, &runs)).await.expect("the latest")
}

async fn compact_once(db: &Db, run: RunId) -> Result<Compacted> {
    db.write(move |tx| compact(tx, run, None)).await
}

/// How many rows of `table` belong to a run.
async fn count(db: &Db, table: &'static str, run: RunId) -> usize {
    let sql = format!("SELECT COUNT(*) AS n FROM {table} WHERE run = $1");
    db.read(move |tx| tx.query_one(&sql, &params![run])?.get("n")).await.expect("counting")
}
