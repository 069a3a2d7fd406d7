//! Runs on their way into a database.

use rusqlite::{OptionalExtension, Transaction, params};
use uuid::Uuid;

use super::Database;
use crate::error::Result;
use crate::record::{Dataset, Point, Run, Stage};
use crate::series::Sorted;

impl Database {
    /// Writes a run with all its points, in place of what was there of it.
    pub fn put_run(&mut self, run: &Run, series: &[Sorted]) -> Result<()> {
        self.change(|tx| {
            forget(tx, &run.id)?;
            let experiment = run.experiment.parse::<i64>().unwrap_or_default();
            // The time of deletion is not told; what matters is that there is one.
            let deleted = (run.stage == Stage::Deleted)
                .then(|| run.deleted_at.or(run.end_time).unwrap_or(run.start_time));
            tx.execute(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name,
                     user_id, status, start_time, end_time, source_version, lifecycle_stage,
                     artifact_uri, experiment_id, deleted_time)
                 VALUES (?1, ?2, 'UNKNOWN', '', '', ?3, ?4, ?5, ?6, '', ?7, ?8, ?9, ?10)",
                params![
                    run.id,
                    run.name,
                    run.user_id,
                    run.status,
                    run.start_time,
                    run.end_time,
                    run.stage.as_str(),
                    run.artifact_uri,
                    experiment,
                    deleted,
                ],
            )?;
            for (table, pairs) in [("params", &run.params), ("tags", &run.tags)] {
                let sql = format!("INSERT INTO {table} (run_uuid, key, value) VALUES (?1, ?2, ?3)");
                let mut insert = tx.prepare_cached(&sql)?;
                for (key, value) in pairs {
                    insert.execute(params![run.id, key, value])?;
                }
            }
            for series in series {
                write_series(tx, &run.id, series)?;
            }
            for dataset in &run.datasets {
                write_dataset(tx, &run.id, experiment, dataset)?;
            }
            Ok(())
        })
    }
}

fn forget(tx: &Transaction<'_>, run: &str) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM input_tags WHERE input_uuid IN
             (SELECT input_uuid FROM inputs WHERE destination_id = ?1)",
        "DELETE FROM inputs WHERE destination_id = ?1",
        "DELETE FROM params WHERE run_uuid = ?1",
        "DELETE FROM tags WHERE run_uuid = ?1",
        "DELETE FROM latest_metrics WHERE run_uuid = ?1",
        "DELETE FROM metrics WHERE run_uuid = ?1",
        "DELETE FROM runs WHERE run_uuid = ?1",
    ] {
        tx.execute(sql, [run])?;
    }
    Ok(())
}

/// A value that is none is a marked zero.
fn kept(value: f64) -> (f64, bool) {
    if value.is_nan() { (0.0, true) } else { (value, false) }
}

fn write_series(tx: &Transaction<'_>, run: &str, series: &Sorted) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT OR IGNORE INTO metrics (run_uuid, key, timestamp, step, value, is_nan)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let is_later = |a: &Point, b: &Point| {
        let (x, y) = (kept(a.value).0, kept(b.value).0);
        (a.step, a.timestamp).cmp(&(b.step, b.timestamp)).then(x.total_cmp(&y)).is_ge()
    };
    let mut latest: Option<Point> = None;
    for point in series.points() {
        let unread = |cause| rusqlite::Error::ToSqlConversionFailure(Box::new(cause));
        let point: Point = point.map_err(unread)?;
        let (value, nan) = kept(point.value);
        insert.execute(params![run, series.key(), point.timestamp, point.step, value, nan])?;
        if latest.is_none_or(|latest| is_later(&point, &latest)) {
            latest = Some(point);
        }
    }
    if let Some(latest) = latest {
        let (value, nan) = kept(latest.value);
        tx.execute(
            "INSERT INTO latest_metrics (run_uuid, key, timestamp, step, value, is_nan)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![run, series.key(), latest.timestamp, latest.step, value, nan],
        )?;
    }
    Ok(())
}

fn write_dataset(
    tx: &Transaction<'_>,
    run: &str,
    experiment: i64,
    dataset: &Dataset,
) -> rusqlite::Result<()> {
    let id: Option<String> = tx
        .query_row(
            "SELECT dataset_uuid FROM datasets
             WHERE experiment_id = ?1 AND name = ?2 AND digest = ?3",
            params![experiment, dataset.name, dataset.digest],
            |row| row.get(0),
        )
        .optional()?;
    let known = id.is_some();
    let id = id.unwrap_or_else(|| Uuid::now_v7().simple().to_string());
    if !known {
        tx.execute(
            "INSERT INTO datasets (dataset_uuid, experiment_id, name, digest, dataset_source_type,
                 dataset_source, dataset_schema, dataset_profile)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                id,
                experiment,
                dataset.name,
                dataset.digest,
                dataset.source_type,
                dataset.source,
                dataset.schema,
                dataset.profile,
            ],
        )?;
    }
    let input = Uuid::now_v7().simple().to_string();
    tx.execute(
        "INSERT INTO inputs (input_uuid, source_type, source_id, destination_type, destination_id)
         VALUES (?1, 'DATASET', ?2, 'RUN', ?3)",
        params![input, id, run],
    )?;
    for (name, value) in &dataset.tags {
        tx.execute(
            "INSERT INTO input_tags (input_uuid, name, value) VALUES (?1, ?2, ?3)",
            params![input, name, value],
        )?;
    }
    Ok(())
}
