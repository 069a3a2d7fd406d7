//! Evaluation datasets in the database.

use std::collections::{BTreeMap, HashMap};

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};
use falaj_tracking::ExperimentId;

use super::dataset::{Dataset, DatasetId, no_dataset};
use super::record::Record;
use crate::trace::store::{LISTED, list};

/// A purged experiment gives its id back at once; what pointed to it is cleared away later.
const LINKS: &str =
    "evaluation_dataset_link l JOIN experiment e ON e.no = l.experiment AND e.id >= 0";

pub(super) fn insert(tx: &mut Tx<'_>, project: ProjectId, dataset: &Dataset) -> Result<()> {
    tx.execute(
        "INSERT INTO evaluation_dataset (id, project, body) VALUES ($1, $2, $3)",
        &params![&dataset.id, project, json(dataset)?],
    )
    .map(drop)
}

pub(super) fn update(tx: &mut Tx<'_>, dataset: &Dataset) -> Result<()> {
    let sql = "UPDATE evaluation_dataset SET body = $2 WHERE id = $1";
    match tx.execute(sql, &params![&dataset.id, json(dataset)?])? {
        0 => Err(no_dataset(dataset.id.as_str())),
        _ => Ok(()),
    }
}

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId, id: &DatasetId) -> Result<Option<Dataset>> {
    let sql = "SELECT body FROM evaluation_dataset WHERE id = $1 AND project = $2";
    tx.query_opt(sql, &params![id, project])?.as_ref().map(read).transpose()
}

pub(super) fn count(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM evaluation_dataset WHERE project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

/// Hands over every dataset of a project, one by one; only those of some experiments, if any are
/// named.
pub(super) fn each(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiments: Option<&[i64]>,
    mut each: impl FnMut(Dataset, usize) -> Result<()>,
) -> Result<()> {
    let mut values = vec![Value::from(project)];
    let mut sql = "SELECT body FROM evaluation_dataset WHERE project = $1".to_owned();
    if let Some(experiments) = experiments {
        sql.push_str(
            " AND id IN (SELECT dataset FROM evaluation_dataset_link WHERE experiment IN (",
        );
        sql.push_str(&list(2, experiments.len()));
        sql.push_str("))");
        values.extend(experiments.iter().map(|no| Value::from(*no)));
    }
    tx.scan(&sql, &values, |row| {
        let body: String = row.get("body")?;
        each(parse(&body)?, body.len())
    })
}

pub(super) fn delete(tx: &mut Tx<'_>, id: &DatasetId) -> Result<()> {
    for sql in [
        "DELETE FROM evaluation_record WHERE dataset = $1",
        "DELETE FROM evaluation_dataset_link WHERE dataset = $1",
        "DELETE FROM evaluation_dataset WHERE id = $1",
    ] {
        tx.execute(sql, &params![id])?;
    }
    Ok(())
}

pub(super) fn link(tx: &mut Tx<'_>, id: &DatasetId, experiment: i64) -> Result<()> {
    tx.execute(
        "INSERT INTO evaluation_dataset_link (dataset, experiment) VALUES ($1, $2)
         ON CONFLICT (dataset, experiment) DO NOTHING",
        &params![id, experiment],
    )
    .map(drop)
}

pub(super) fn unlink(tx: &mut Tx<'_>, id: &DatasetId, experiment: i64) -> Result<u64> {
    let sql = "DELETE FROM evaluation_dataset_link WHERE dataset = $1 AND experiment = $2";
    tx.execute(sql, &params![id, experiment])
}

/// The experiments that a dataset belongs to, in order.
pub(super) fn experiments(tx: &mut Tx<'_>, id: &DatasetId) -> Result<Vec<ExperimentId>> {
    let of = experiments_of(tx, std::slice::from_ref(id))?;
    Ok(of.into_values().next().unwrap_or_default())
}

/// The same for several datasets.
pub(super) fn experiments_of(
    tx: &mut Tx<'_>,
    ids: &[DatasetId],
) -> Result<HashMap<String, Vec<ExperimentId>>> {
    let mut all: HashMap<String, Vec<ExperimentId>> = HashMap::new();
    for ids in ids.chunks(LISTED) {
        let sql = format!(
            "SELECT l.dataset, e.id FROM {LINKS} WHERE l.dataset IN ({}) ORDER BY e.id",
            list(1, ids.len())
        );
        let ids: Vec<Value> = ids.iter().map(Value::from).collect();
        for row in tx.query(&sql, &ids)? {
            all.entry(row.get("dataset")?).or_default().push(row.get("id")?);
        }
    }
    Ok(all)
}

/// Forgets what points to experiments that are gone; how much it was.
pub(crate) fn clear_orphans(tx: &mut Tx<'_>) -> Result<u64> {
    tx.execute(
        "DELETE FROM evaluation_dataset_link WHERE NOT EXISTS
             (SELECT 1 FROM experiment e
              WHERE e.no = evaluation_dataset_link.experiment AND e.id >= 0)",
        &[],
    )
}

/// A record with what it measures.
pub(super) fn find_record(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    hash: &[u8],
) -> Result<Option<(Record, usize)>> {
    let sql = "SELECT body FROM evaluation_record WHERE dataset = $1 AND hash = $2";
    let row = tx.query_opt(sql, &params![id, hash.to_vec()])?;
    row.as_ref().map(weighed).transpose()
}

/// Writes a record, instead of an earlier one of the same inputs; what it measures.
pub(super) fn put_record(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    hash: &[u8],
    record: &Record,
) -> Result<usize> {
    let body = json(record)?;
    let size = body.len();
    tx.execute(
        "INSERT INTO evaluation_record (dataset, hash, id, created_at, body)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (dataset, hash) DO UPDATE SET body = excluded.body",
        &params![id, hash.to_vec(), &record.id, record.created_at, body],
    )?;
    Ok(size)
}

/// The records behind a place, the oldest first: at most `limit`, and no more than `room` holds,
/// but one at least. Whether there are more.
pub(super) fn records(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    after: &(i64, String),
    limit: usize,
    room: usize,
) -> Result<(Vec<Record>, bool)> {
    let rows = tx.query(
        "SELECT id, created_at, octet_length(body) AS size FROM evaluation_record
         WHERE dataset = $1 AND (created_at > $2 OR (created_at = $2 AND id > $3))
         ORDER BY created_at, id LIMIT $4",
        &params![id, after.0, &after.1, limit.saturating_add(1)],
    )?;
    let (mut ids, mut taken) = (Vec::new(), 0_usize);
    for row in rows.iter().take(limit) {
        taken = taken.saturating_add(row.get("size")?);
        if taken > room && !ids.is_empty() {
            break;
        }
        ids.push(row.get::<String>("id")?);
    }
    let more = ids.len() < rows.len();
    let mut found: BTreeMap<(i64, String), Record> = BTreeMap::new();
    for ids in ids.chunks(LISTED) {
        let sql = format!(
            "SELECT body FROM evaluation_record WHERE dataset = $1 AND id IN ({})",
            list(2, ids.len())
        );
        for row in tx.query(&sql, &with(id, ids))? {
            let (record, _) = weighed(&row)?;
            found.insert((record.created_at, record.id.clone()), record);
        }
    }
    Ok((found.into_values().collect(), more))
}

/// Deletes records by their ids: how many there were, and what they measured.
pub(super) fn delete_records(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    records: &[String],
) -> Result<(usize, usize)> {
    let (mut count, mut size) = (0, 0);
    for records in records.chunks(LISTED) {
        let (these, values) = (list(2, records.len()), with(id, records));
        let sql = format!(
            "SELECT COUNT(*) AS n, COALESCE(SUM(octet_length(body)), 0) AS size
             FROM evaluation_record WHERE dataset = $1 AND id IN ({these})"
        );
        let row = tx.query_one(&sql, &values)?;
        count += row.get::<usize>("n")?;
        size += row.get::<usize>("size")?;
        let sql = format!("DELETE FROM evaluation_record WHERE dataset = $1 AND id IN ({these})");
        tx.execute(&sql, &values)?;
    }
    Ok((count, size))
}

fn with(id: &DatasetId, records: &[String]) -> Vec<Value> {
    let records = records.iter().map(|record| Value::from(record.clone()));
    std::iter::once(Value::from(id)).chain(records).collect()
}

fn json(what: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(what).map_err(Error::internal)
}

fn parse(body: &str) -> Result<Dataset> {
    serde_json::from_str(body).map_err(Error::internal)
}

fn read(row: &Row) -> Result<Dataset> {
    parse(&row.get::<String>("body")?)
}

fn weighed(row: &Row) -> Result<(Record, usize)> {
    let body: String = row.get("body")?;
    Ok((serde_json::from_str(&body).map_err(Error::internal)?, body.len()))
}
