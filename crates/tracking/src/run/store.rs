//! Runs in the database.

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};

use super::id::RunId;
use super::run::{RunInfo, RunStatus};
use super::touch;
use crate::experiment::{ExperimentId, Stage};
use crate::homes::Address;

const COLUMNS: &str = "r.id, r.experiment, e.id AS experiment_id, r.name, r.status, r.user_id,
    r.start_time, r.end_time, r.stage, r.artifact_uri";

pub(crate) fn address(tx: &mut Tx<'_>, run: RunId) -> Result<Option<Address>> {
    let row = tx.query_opt(
        "SELECT e.project, e.no, e.id FROM run r JOIN experiment e ON e.no = r.experiment
         WHERE r.id = $1 AND e.id >= 0",
        &params![run],
    )?;
    row.map(|row| {
        Ok(Address {
            project: row.get::<ProjectId>("project")?,
            experiment: row.get("no")?,
            experiment_id: row.get("id")?,
        })
    })
    .transpose()
}

/// Gives the version the run was made at.
pub(crate) fn insert(tx: &mut Tx<'_>, run: &RunInfo) -> Result<i64> {
    tx.execute(
        "INSERT INTO run (id, experiment, name, status, user_id, start_time, end_time, stage,
             deleted_at, artifact_uri)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &params![
            run.id,
            run.experiment,
            &run.name,
            run.status,
            &run.user_id,
            run.start_time,
            run.end_time,
            run.stage,
            None::<i64>,
            &run.artifact_uri,
        ],
    )?;
    touch::note(tx, run.id, run.experiment)
}

pub(crate) fn find(tx: &mut Tx<'_>, run: RunId) -> Result<Option<RunInfo>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM run r JOIN experiment e ON e.no = r.experiment
         WHERE r.id = $1 AND e.id >= 0"
    );
    tx.query_opt(&sql, &params![run])?.as_ref().map(read).transpose()
}

/// Takes a run away; what was logged to it stays behind and must follow.
pub(crate) fn delete(tx: &mut Tx<'_>, run: RunId) -> Result<()> {
    touch::forget(tx, run)?;
    tx.execute("DELETE FROM run WHERE id = $1", &params![run]).map(drop)
}

/// Whether a run is still there: its home may have been remembered longer.
pub(crate) fn exists(tx: &mut Tx<'_>, run: RunId) -> Result<bool> {
    Ok(tx.query_opt("SELECT stage FROM run WHERE id = $1", &params![run])?.is_some())
}

/// What an update changes; an absent field stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    pub(crate) status: Option<RunStatus>,
    pub(crate) end_time: Option<i64>,
    pub(crate) name: Option<String>,
}

pub(crate) fn update(tx: &mut Tx<'_>, run: RunId, update: &Update) -> Result<()> {
    tx.execute(
        "UPDATE run SET status = COALESCE($2, status), end_time = COALESCE($3, end_time),
             name = COALESCE($4, name) WHERE id = $1",
        &params![run, update.status, update.end_time, update.name.clone()],
    )
    .map(drop)
}

pub(crate) fn set_stage(tx: &mut Tx<'_>, run: RunId, stage: Stage, now: i64) -> Result<()> {
    let deleted_at = (stage == Stage::Deleted).then_some(now);
    tx.execute(
        "UPDATE run SET stage = $2, deleted_at = $3 WHERE id = $1",
        &params![run, stage, deleted_at],
    )
    .map(drop)
}

/// The runs with these ids, without what was logged.
pub(crate) fn infos(
    tx: &mut Tx<'_>,
    ids: &[RunId],
) -> Result<std::collections::HashMap<RunId, RunInfo>> {
    let (list, values) = id_list(ids);
    let sql = format!(
        "SELECT {COLUMNS} FROM run r JOIN experiment e ON e.no = r.experiment
         WHERE r.id IN ({list}) AND e.id >= 0"
    );
    let rows = tx.query(&sql, &values)?;
    rows.iter().map(|row| read(row).map(|info| (info.id, info))).collect()
}

/// `$1, $2, …` and the values for it. The list is padded to a power of two by repeating the last
/// id, so that few different statements are ever prepared.
pub(crate) fn id_list<T: Copy + Into<Value>>(ids: &[T]) -> (String, Vec<Value>) {
    let padded = ids.len().max(1).next_power_of_two();
    let last = ids.last().map_or(Value::Null, |id| (*id).into());
    let mut values: Vec<Value> = ids.iter().map(|id| (*id).into()).collect();
    values.resize(padded, last);
    let places: Vec<String> = (1..=padded).map(|at| format!("${at}")).collect();
    (places.join(", "), values)
}

/// The parameters of a run under the given keys.
pub(crate) fn param_values(
    tx: &mut Tx<'_>,
    run: RunId,
) -> Result<std::collections::HashMap<i64, String>> {
    let mut found = std::collections::HashMap::new();
    tx.scan("SELECT key, value FROM param WHERE run = $1", &params![run], |row| {
        found.insert(row.get("key")?, row.get("value")?);
        Ok(())
    })?;
    Ok(found)
}

pub(crate) fn insert_param(tx: &mut Tx<'_>, run: RunId, key: i64, value: &str) -> Result<()> {
    tx.execute("INSERT INTO param (run, key, value) VALUES ($1, $2, $3)", &params![run, key, value])
        .map(drop)
}

pub(crate) fn set_tag(tx: &mut Tx<'_>, run: RunId, key: i64, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO run_tag (run, key, value) VALUES ($1, $2, $3)
         ON CONFLICT (run, key) DO UPDATE SET value = excluded.value",
        &params![run, key, value],
    )
    .map(drop)
}

pub(crate) fn tag(tx: &mut Tx<'_>, run: RunId, key: i64) -> Result<Option<String>> {
    tx.query_opt("SELECT value FROM run_tag WHERE run = $1 AND key = $2", &params![run, key])?
        .map(|row| row.get("value"))
        .transpose()
}

pub(crate) fn delete_tag(tx: &mut Tx<'_>, run: RunId, key: i64) -> Result<bool> {
    let sql = "DELETE FROM run_tag WHERE run = $1 AND key = $2";
    Ok(tx.execute(sql, &params![run, key])? > 0)
}

fn read(row: &Row) -> Result<RunInfo> {
    Ok(RunInfo {
        id: row.get("id")?,
        experiment: row.get("experiment")?,
        experiment_id: row.get::<ExperimentId>("experiment_id")?,
        name: row.get("name")?,
        user_id: row.get("user_id")?,
        status: row.get("status")?,
        start_time: row.get("start_time")?,
        end_time: row.get("end_time")?,
        stage: row.get("stage")?,
        artifact_uri: row.get("artifact_uri")?,
    })
}
