//! Checkpoints, the parts that ranks reported, and how far ranks are, in the database.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{JobId, StartId, TaskId};

pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_checkpoint (
        job TEXT NOT NULL REFERENCES training_job (id), task INTEGER NOT NULL,
        step INTEGER NOT NULL, attempt INTEGER NOT NULL, path TEXT NOT NULL,
        manifest TEXT NOT NULL, whole_at INTEGER NOT NULL, broken TEXT,
        PRIMARY KEY (job, task, step));
    CREATE TABLE training_part (
        job TEXT NOT NULL REFERENCES training_job (id), task INTEGER NOT NULL,
        step INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER NOT NULL,
        path TEXT NOT NULL, files TEXT NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (job, task, step, attempt, rank));
    CREATE TABLE training_progress (
        job TEXT NOT NULL REFERENCES training_job (id), task INTEGER NOT NULL,
        rank INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL,
        at INTEGER NOT NULL, PRIMARY KEY (job, task, rank)) CLUSTERED;";

/// What one rank saved: names of files below the path, with their SHA-256.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub path: String,
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A checkpoint that every rank has.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Checkpoint {
    pub task: u32,
    pub step: i64,
    /// The start that saved it.
    pub attempt: u32,
    /// Where the first rank saved it.
    pub path: String,
    /// What each rank saved, by its number.
    pub manifest: BTreeMap<u32, Part>,
    /// When the last rank had it.
    pub whole_at: Timestamp,
    /// Why it is not gone on from, if somebody changed its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

const COLUMNS: &str = "task, step, attempt, path, manifest, whole_at, broken";

/// The newest checkpoint of a task that can be gone on from.
pub(crate) fn last_whole(tx: &mut Tx<'_>, task: TaskId) -> Result<Option<Checkpoint>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_checkpoint
         WHERE job = $1 AND task = $2 AND broken IS NULL ORDER BY step DESC LIMIT 1"
    );
    tx.query_opt(&sql, &params![task.job, task.task])?.as_ref().map(read).transpose()
}

/// The checkpoints of a job, the newest first; of one task if it is named.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    job: JobId,
    task: Option<u32>,
    limit: usize,
) -> Result<Vec<Checkpoint>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_checkpoint
         WHERE job = $1 AND (CAST($2 AS BIGINT) < 0 OR task = $2) ORDER BY task, step DESC LIMIT $3"
    );
    let task = task.map_or(-1, i64::from);
    tx.query(&sql, &params![job, task, limit])?.iter().map(read).collect()
}

/// Keeps what one rank saved.
pub(crate) fn put_part(
    tx: &mut Tx<'_>,
    id: StartId,
    (rank, step): (u32, i64),
    part: &Part,
) -> Result<()> {
    let files = serde_json::to_string(&part.files).map_err(Error::internal)?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_part (job, task, step, attempt, rank, path, files, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (job, task, step, attempt, rank) DO UPDATE SET path = excluded.path,
             files = excluded.files, at = excluded.at",
        &params![id.task.job, id.task.task, step, id.attempt, rank, &part.path, files, now],
    )
    .map(drop)
}

/// What ranks of one start saved at a step.
pub(crate) fn parts(tx: &mut Tx<'_>, id: StartId, step: i64) -> Result<BTreeMap<u32, Part>> {
    let rows = tx.query(
        "SELECT rank, path, files FROM training_part
         WHERE job = $1 AND task = $2 AND step = $3 AND attempt = $4 ORDER BY rank",
        &params![id.task.job, id.task.task, step, id.attempt],
    )?;
    let part = |row: &Row| {
        let files: String = row.get("files")?;
        let files = serde_json::from_str(&files).map_err(Error::internal)?;
        Ok((row.get("rank")?, Part { path: row.get("path")?, files }))
    };
    rows.iter().map(part).collect()
}

/// Lets a checkpoint count. What an earlier start saved at the same step is replaced.
pub(crate) fn count(
    tx: &mut Tx<'_>,
    id: StartId,
    step: i64,
    manifest: &BTreeMap<u32, Part>,
) -> Result<()> {
    let path = manifest.values().next().map_or("", |part| part.path.as_str());
    let text = serde_json::to_string(manifest).map_err(Error::internal)?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_checkpoint (job, task, step, attempt, path, manifest, whole_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (job, task, step) DO UPDATE SET attempt = excluded.attempt,
             path = excluded.path, manifest = excluded.manifest, whole_at = excluded.whole_at,
             broken = NULL",
        &params![id.task.job, id.task.task, step, id.attempt, path, text, now],
    )?;
    tx.execute(
        "DELETE FROM training_part WHERE job = $1 AND task = $2 AND step = $3",
        &params![id.task.job, id.task.task, step],
    )
    .map(drop)
}

pub(crate) fn mark_broken(tx: &mut Tx<'_>, task: TaskId, step: i64, why: &str) -> Result<()> {
    tx.execute(
        "UPDATE training_checkpoint SET broken = $4 WHERE job = $1 AND task = $2 AND step = $3",
        &params![task.job, task.task, step, why],
    )
    .map(drop)
}

pub(crate) fn forget(tx: &mut Tx<'_>, task: TaskId, step: i64) -> Result<()> {
    tx.execute(
        "DELETE FROM training_checkpoint WHERE job = $1 AND task = $2 AND step = $3",
        &params![task.job, task.task, step],
    )
    .map(drop)
}

/// Takes what starts before this one began to save and that does not count; where it lies.
pub(crate) fn take_halves(tx: &mut Tx<'_>, id: StartId) -> Result<Vec<String>> {
    let rows = tx.query(
        "SELECT path FROM training_part WHERE job = $1 AND task = $2 AND attempt < $3",
        &params![id.task.job, id.task.task, id.attempt],
    )?;
    if !rows.is_empty() {
        tx.execute(
            "DELETE FROM training_part WHERE job = $1 AND task = $2 AND attempt < $3",
            &params![id.task.job, id.task.task, id.attempt],
        )?;
    }
    rows.iter().map(|row| row.get("path")).collect()
}

/// Notes how far a rank is. An older step changes nothing but the time.
pub(crate) fn put_step(tx: &mut Tx<'_>, id: StartId, rank: u32, step: i64) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_progress (job, task, rank, attempt, step, at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (job, task, rank) DO UPDATE SET attempt = excluded.attempt,
             step = excluded.step,
             at = CASE WHEN training_progress.attempt = excluded.attempt
                       AND training_progress.step >= excluded.step
                       THEN training_progress.at ELSE excluded.at END",
        &params![id.task.job, id.task.task, rank, id.attempt, step, now],
    )
    .map(drop)
}

/// How far the ranks of a start are, and since when.
pub(crate) fn steps(tx: &mut Tx<'_>, id: StartId) -> Result<Vec<(u32, i64, Timestamp)>> {
    let rows = tx.query(
        "SELECT rank, step, at FROM training_progress
         WHERE job = $1 AND task = $2 AND attempt = $3 ORDER BY rank",
        &params![id.task.job, id.task.task, id.attempt],
    )?;
    rows.iter().map(|row| Ok((row.get("rank")?, row.get("step")?, row.get("at")?))).collect()
}

fn read(row: &Row) -> Result<Checkpoint> {
    let manifest: String = row.get("manifest")?;
    Ok(Checkpoint {
        task: row.get("task")?,
        step: row.get("step")?,
        attempt: row.get("attempt")?,
        path: row.get("path")?,
        manifest: serde_json::from_str(&manifest).map_err(Error::internal)?,
        whole_at: row.get("whole_at")?,
        broken: row.get("broken")?,
    })
}
