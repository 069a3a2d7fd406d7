//! The embedded online store in process: reading a row, and a hundred, of a million and of many more.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use falaj_online::store::{Embedded, EmbeddedConfig};
use falaj_online::{Batch, Key, Kind, Layout, Position, Scalar, Stamp, Value};

use super::Jumps;
use crate::report::{Goal, Report, median, p99};

/// Rows of 50 floats each, some 400 bytes with their stamp.
const ROWS: i64 = 1_000_000;
const FIELDS: usize = 50;
/// Rows that are applied at a time.
const AT_ONCE: i64 = 20_000;

fn key(entity: i64) -> Result<Key> {
    Ok(Key::new(1, [("id", &Value::Int64(entity))])?)
}

/// Brings entities of one range, with so many fields each.
fn fill(store: &Embedded, entities: std::ops::Range<i64>, fields: usize) -> Result<()> {
    let layout = Layout::new(&vec![Kind::One(Scalar::Float64); fields]);
    let mut first = entities.start;
    while first < entities.end {
        let mut batch = Batch::new();
        let last = (first + AT_ONCE).min(entities.end);
        for entity in first..last {
            #[allow(clippy::cast_precision_loss, reason = "any number will do")]
            let values = vec![Value::Float64(entity as f64); fields];
            let row = layout.pack(Stamp { event: 1, ..Stamp::default() }, &values)?;
            batch.put(&key(entity)?, &row)?;
        }
        store.apply(batch)?;
        first = last;
    }
    Ok(store.settle(Position { tx: 1, seq: entities.end })?)
}

/// The median and the 99th of 100 of so many reads, in microseconds. The same `seed` reads the
/// same keys.
fn reads(
    store: &Embedded,
    of: i64,
    (keys, count): (usize, usize),
    seed: u64,
) -> Result<(f64, f64)> {
    let mut jumps = Jumps(seed);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let asked = (0..keys).map(|_| key(jumps.below(of))).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let rows = store.read(&asked, usize::MAX)?;
        took.push(began.elapsed().as_secs_f64() * 1e6);
        ensure!(rows.iter().all(Option::is_some), "a row is missing");
    }
    Ok((median(&mut took), p99(&mut took)))
}

pub(super) fn one_and_many(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = Embedded::open(&folder.path().join("online"), &EmbeddedConfig::default())?;
    let began = Instant::now();
    fill(&store, 0..ROWS, FIELDS)?;
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = ROWS as f64 / began.elapsed().as_secs_f64() / 1e3;
    report.note("bringing a million rows into the embedded store", rate, "thousand/s");
    // Most for the first time.
    let both = |store: &Embedded, seed: u64| {
        let one = reads(store, ROWS, (1, 200_000), seed)?;
        anyhow::Ok((one, reads(store, ROWS, (100, 2000), seed + 1)?))
    };
    let (one, many) = both(&store, 7)?;
    report.row("one row and 100, p99", &[(one.1, "µs"), (many.1, "µs")]);
    report.goal("one row, median", one.0, "µs", Goal::AtMost(3.0));
    report.goal("100 rows, median", many.0, "µs", Goal::AtMost(300.0));
    both(&store, 7)?;
    let (one, many) = both(&store, 7)?;
    report.row("the same later", &[(one.0, "µs"), (many.0, "µs")]);
    Ok(())
}

/// Whether a read costs the same however many keys there are: rows of one float, with the memory
/// that a server gives the store, so that most of a large one is in files.
pub(super) fn keys(report: &mut Report, most: i64, place: &Path) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("keys-").tempdir_in(place)?;
    let store = Embedded::open(&folder.path().join("online"), &EmbeddedConfig::default())?;
    let (mut there, mut first) = (0, None);
    for count in [ROWS, 10 * ROWS, 50 * ROWS].into_iter().filter(|count| *count <= most) {
        let began = Instant::now();
        fill(&store, there..count, 1)?;
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = (count - there) as f64 / began.elapsed().as_secs_f64() / 1e3;
        there = count;
        // What is in memory when all keys are asked for alike.
        for seed in [3, 4] {
            reads(&store, count, (100, 10_000), seed)?;
        }
        let one = reads(&store, count, (1, 100_000), 7)?;
        let many = reads(&store, count, (100, 2000), 8)?;
        let what = format!("{} million keys: one row, 100 rows", count / ROWS);
        report.row(&what, &[(one.0, "µs"), (many.0, "µs"), (rate, "thousand/s brought")]);
        let (few, few_many) = *first.get_or_insert((one.0, many.0));
        if count > ROWS {
            let what = format!("{} million keys / 1 million: one row", count / ROWS);
            report.goal(&what, one.0 / few, "×", Goal::AtMost(2.0));
            report.note("the same, 100 rows", many.0 / few_many, "×");
        }
    }
    Ok(())
}
