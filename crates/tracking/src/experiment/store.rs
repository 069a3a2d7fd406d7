//! Experiments in the database.

use std::collections::HashMap;

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, params};

use super::experiment::{Experiment, ExperimentId, Stage};

const COLUMNS: &str = "no, id, name, artifact_location, stage, created_at, updated_at";

pub(crate) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    id: ExperimentId,
) -> Result<Option<Experiment>> {
    let sql =
        format!("SELECT {COLUMNS} FROM experiment WHERE project = $1 AND id = $2 AND id >= 0");
    let row = tx.query_opt(&sql, &params![project, id])?;
    row.map(|row| with_tags(tx, &row)).transpose()
}

pub(crate) fn find_by_name(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &str,
) -> Result<Option<Experiment>> {
    let sql =
        format!("SELECT {COLUMNS} FROM experiment WHERE project = $1 AND name = $2 AND id >= 0");
    let row = tx.query_opt(&sql, &params![project, name])?;
    row.map(|row| with_tags(tx, &row)).transpose()
}

/// The number in the database of an experiment.
pub(crate) fn number(tx: &mut Tx<'_>, project: ProjectId, id: ExperimentId) -> Result<Option<i64>> {
    let sql = "SELECT no FROM experiment WHERE project = $1 AND id = $2 AND id >= 0";
    tx.query_opt(sql, &params![project, id])?.map(|row| row.get("no")).transpose()
}

/// All experiments of a project, with their tags.
pub(crate) fn all(tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<Experiment>> {
    let sql =
        format!("SELECT {COLUMNS} FROM experiment WHERE project = $1 AND id >= 0 ORDER BY id");
    let mut found: Vec<Experiment> =
        tx.query(&sql, &params![project])?.iter().map(read).collect::<Result<_>>()?;
    let tags = tx.query(
        "SELECT t.experiment, t.key, t.value FROM experiment_tag t
         JOIN experiment e ON e.no = t.experiment WHERE e.project = $1 ORDER BY t.key",
        &params![project],
    )?;
    let places: HashMap<i64, usize> =
        found.iter().enumerate().map(|(at, experiment)| (experiment.no, at)).collect();
    for tag in &tags {
        let of: i64 = tag.get("experiment")?;
        if let Some(at) = places.get(&of) {
            found[*at].tags.push((tag.get("key")?, tag.get("value")?));
        }
    }
    Ok(found)
}

/// Whether an id is in use, or may have been and is still being cleared away.
pub(crate) fn was_given(tx: &mut Tx<'_>, project: ProjectId, id: ExperimentId) -> Result<bool> {
    Ok(number(tx, project, id)?.is_some() || id.0 <= last_purged(tx, project)?)
}

fn last_purged(tx: &mut Tx<'_>, project: ProjectId) -> Result<i64> {
    let row =
        tx.query_opt("SELECT id FROM experiment_high WHERE project = $1", &params![project])?;
    row.map_or(Ok(0), |row| row.get("id"))
}

/// The id the next experiment of a project gets: ids are never given twice.
pub(crate) fn next_id(tx: &mut Tx<'_>, project: ProjectId) -> Result<ExperimentId> {
    let last = tx.query_one(
        "SELECT COALESCE(MAX(id), 0) AS last FROM experiment WHERE project = $1 AND id >= 0",
        &params![project],
    )?;
    let purged = last_purged(tx, project)?;
    Ok(ExperimentId(last.get::<i64>("last")?.max(purged) + 1))
}

/// Waits for everything that is being added to the experiment, and lets nothing more in.
pub(crate) fn lock(tx: &mut Tx<'_>, project: ProjectId, id: ExperimentId) -> Result<()> {
    tx.lock(&format!("experiment/{project}/{id}"))
}

/// The stage of an experiment that something is about to be added to, and that it keeps until then;
/// none if it is not there.
pub(crate) fn stage_for_adding(
    tx: &mut Tx<'_>,
    project: ProjectId,
    id: ExperimentId,
) -> Result<Option<Stage>> {
    tx.lock_shared(&format!("experiment/{project}/{id}"))?;
    let sql = "SELECT stage FROM experiment WHERE project = $1 AND id = $2 AND id >= 0";
    tx.query_opt(sql, &params![project, id])?.map(|row| row.get("stage")).transpose()
}

pub(crate) fn insert(tx: &mut Tx<'_>, project: ProjectId, new: &Experiment) -> Result<()> {
    tx.execute(
        "INSERT INTO experiment
             (no, project, id, name, artifact_location, stage, created_at, updated_at, reset)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)",
        &params![
            new.no,
            project,
            new.id,
            &new.name,
            &new.artifact_location,
            new.stage,
            new.created_at,
            new.updated_at,
        ],
    )?;
    for (key, value) in &new.tags {
        set_tag(tx, new.no, key, value)?;
    }
    Ok(())
}

pub(crate) fn rename(tx: &mut Tx<'_>, no: i64, name: &str, now: i64) -> Result<()> {
    tx.execute(
        "UPDATE experiment SET name = $2, updated_at = $3 WHERE no = $1",
        &params![no, name, now],
    )
    .map(drop)
}

/// Moves an experiment, and all its runs with it, to the bin or back.
pub(crate) fn set_stage(tx: &mut Tx<'_>, no: i64, stage: Stage, now: i64) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE experiment SET stage = $2, updated_at = $3 WHERE no = $1 AND stage <> $2",
        &params![no, stage, now],
    )?;
    let deleted_at = (stage == Stage::Deleted).then_some(now);
    tx.execute(
        "UPDATE run SET stage = $2, deleted_at = $3 WHERE experiment = $1",
        &params![no, stage, deleted_at],
    )?;
    crate::run::touch::note_all(tx, no)?;
    Ok(changed > 0)
}

/// Takes away the experiment that every project has, as part of deleting the project. It stays if anything
/// is in it, and with it the project.
pub fn forget_project(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    let sql = "SELECT no FROM experiment WHERE project = $1 AND id = 0";
    let Some(row) = tx.query_opt(sql, &params![project])? else { return Ok(()) };
    let no: i64 = row.get("no")?;
    for table in ["run", "logged_model", "dataset"] {
        let sql = format!("SELECT 1 AS one FROM {table} WHERE experiment = $1 LIMIT 1");
        if tx.query_opt(&sql, &params![no])?.is_some() {
            return Ok(());
        }
    }
    for table in ["experiment_tag", "tracking_key"] {
        tx.execute(&format!("DELETE FROM {table} WHERE experiment = $1"), &params![no])?;
    }
    tx.execute("DELETE FROM experiment WHERE no = $1", &params![no]).map(drop)
}

pub(crate) fn set_tag(tx: &mut Tx<'_>, no: i64, key: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO experiment_tag (experiment, key, value) VALUES ($1, $2, $3)
         ON CONFLICT (experiment, key) DO UPDATE SET value = excluded.value",
        &params![no, key, value],
    )
    .map(drop)
}

pub(crate) fn delete_tag(tx: &mut Tx<'_>, no: i64, key: &str) -> Result<bool> {
    let sql = "DELETE FROM experiment_tag WHERE experiment = $1 AND key = $2";
    Ok(tx.execute(sql, &params![no, key])? > 0)
}

fn with_tags(tx: &mut Tx<'_>, row: &Row) -> Result<Experiment> {
    let mut experiment = read(row)?;
    let sql = "SELECT key, value FROM experiment_tag WHERE experiment = $1 ORDER BY key";
    for tag in tx.query(sql, &params![experiment.no])? {
        experiment.tags.push((tag.get("key")?, tag.get("value")?));
    }
    Ok(experiment)
}

fn read(row: &Row) -> Result<Experiment> {
    Ok(Experiment {
        no: row.get("no")?,
        id: row.get("id")?,
        name: row.get("name")?,
        artifact_location: row.get("artifact_location")?,
        stage: row.get("stage")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        tags: Vec::new(),
    })
}
