//! Checkpoints, the parts that ranks reported, and how far ranks are, in the database.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{JobId, StartId, TaskId};

/// Checkpoints of one task that are remembered.
const MOST: i64 = 1000;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
}

/// A checkpoint that every rank has.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) step: i64,
    /// The start that saved it.
    pub(crate) attempt: u32,
    /// Where the first rank saved it.
    pub(crate) path: String,
    /// What each rank saved, by its number.
    pub(crate) manifest: BTreeMap<u32, Part>,
    /// When the last rank had it.
    pub(crate) whole_at: Timestamp,
    /// Why it is not gone on from, if somebody changed its files.
    pub(crate) broken: Option<String>,
}

/// A checkpoint as it is shown, without the names of all its files.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckpointShown {
    pub task: u32,
    pub step: i64,
    /// The start that saved it.
    pub attempt: u32,
    /// How many ranks saved it.
    pub ranks: u32,
    /// Where the first rank saved it.
    pub path: String,
    /// When the last rank had it.
    pub whole_at: Timestamp,
    /// Why it is not gone on from, if somebody changed its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

const COLUMNS: &str = "step, attempt, path, manifest, whole_at, broken";

/// The newest checkpoint of a task that can be gone on from.
pub(crate) fn last_whole(tx: &mut Tx<'_>, task: TaskId) -> Result<Option<Checkpoint>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_checkpoint
         WHERE job = $1 AND task = $2 AND broken IS NULL ORDER BY step DESC LIMIT 1"
    );
    tx.query_opt(&sql, &params![task.job, task.task])?.as_ref().map(read).transpose()
}

/// The checkpoint of a step, whole or broken.
pub(crate) fn at_step(tx: &mut Tx<'_>, task: TaskId, step: i64) -> Result<Option<Checkpoint>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_checkpoint WHERE job = $1 AND task = $2 AND step = $3"
    );
    tx.query_opt(&sql, &params![task.job, task.task, step])?.as_ref().map(read).transpose()
}

/// All checkpoints of a task, the newest first.
pub(crate) fn all(tx: &mut Tx<'_>, task: TaskId) -> Result<Vec<Checkpoint>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_checkpoint
         WHERE job = $1 AND task = $2 ORDER BY step DESC LIMIT $3"
    );
    tx.query(&sql, &params![task.job, task.task, MOST])?.iter().map(read).collect()
}

/// How many checkpoints of a task can be gone on from.
pub(crate) fn good(tx: &mut Tx<'_>, task: TaskId) -> Result<u64> {
    let sql = "SELECT COUNT(*) AS n FROM training_checkpoint
               WHERE job = $1 AND task = $2 AND broken IS NULL";
    tx.query_one(sql, &params![task.job, task.task])?.get("n")
}

/// The checkpoints of a job, by task, the newest of each first, after one; of one task if it is named.
pub(crate) fn page(
    tx: &mut Tx<'_>,
    job: JobId,
    task: Option<u32>,
    after: Option<(u32, i64)>,
    limit: usize,
) -> Result<Vec<CheckpointShown>> {
    let sql = "SELECT c.task AS task, c.step AS step, c.attempt AS attempt, a.world AS ranks,
                   c.path AS path, c.whole_at AS whole_at, c.broken AS broken
               FROM training_checkpoint AS c JOIN training_attempt AS a
                   ON a.job = c.job AND a.task = c.task AND a.attempt = c.attempt
               WHERE c.job = $1 AND (CAST($2 AS BIGINT) < 0 OR c.task = $2)
                   AND (c.task > $3 OR (c.task = $3 AND c.step < $4))
               ORDER BY c.task, c.step DESC LIMIT $5";
    let task = task.map_or(-1, i64::from);
    let (from, step) = after.map_or((-1, 0), |(task, step)| (i64::from(task), step));
    let rows = tx.query(sql, &params![job, task, from, step, limit])?;
    let shown = |row: &Row| {
        Ok(CheckpointShown {
            task: row.get("task")?,
            step: row.get("step")?,
            attempt: row.get("attempt")?,
            ranks: row.get("ranks")?,
            path: row.get("path")?,
            whole_at: row.get("whole_at")?,
            broken: row.get("broken")?,
        })
    };
    rows.iter().map(shown).collect()
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

/// How many ranks of a start have saved a step.
pub(crate) fn count_parts(tx: &mut Tx<'_>, id: StartId, step: i64) -> Result<u32> {
    let sql = "SELECT COUNT(*) AS n FROM training_part
               WHERE job = $1 AND task = $2 AND step = $3 AND attempt = $4";
    tx.query_one(sql, &params![id.task.job, id.task.task, step, id.attempt])?.get("n")
}

/// How many steps other than this one some ranks of a start have saved and others have not.
pub(crate) fn open_steps(tx: &mut Tx<'_>, id: StartId, step: i64) -> Result<u32> {
    let sql = "SELECT COUNT(DISTINCT step) AS n FROM training_part
               WHERE job = $1 AND task = $2 AND attempt = $3 AND step <> $4";
    tx.query_one(sql, &params![id.task.job, id.task.task, id.attempt, step])?.get("n")
}

/// Forgets how far the ranks of a job were and what they began to save: it is over.
pub(crate) fn collect(tx: &mut Tx<'_>, job: JobId) -> Result<()> {
    tx.execute("DELETE FROM training_part WHERE job = $1", &params![job])?;
    tx.execute("DELETE FROM training_progress WHERE job = $1", &params![job]).map(drop)
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

/// Lets a checkpoint count. What an earlier start saved at the same step is replaced; what was found
/// broken stays so until it is saved anew.
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
             path = excluded.path, manifest = excluded.manifest,
             whole_at = CASE WHEN training_checkpoint.attempt = excluded.attempt
                 AND training_checkpoint.manifest = excluded.manifest
                 THEN training_checkpoint.whole_at ELSE excluded.whole_at END,
             broken = CASE WHEN training_checkpoint.attempt = excluded.attempt
                 AND training_checkpoint.manifest = excluded.manifest
                 THEN training_checkpoint.broken ELSE NULL END",
        &params![id.task.job, id.task.task, step, id.attempt, path, text, now],
    )?;
    tx.execute(
        "DELETE FROM training_part WHERE job = $1 AND task = $2 AND step = $3",
        &params![id.task.job, id.task.task, step],
    )?;
    tx.execute(
        "DELETE FROM training_checkpoint WHERE job = $1 AND task = $2 AND step < (
             SELECT MIN(step) FROM (SELECT step FROM training_checkpoint
                 WHERE job = $1 AND task = $2 ORDER BY step DESC LIMIT $3) AS newest)",
        &params![id.task.job, id.task.task, MOST],
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

/// Notes that a rank lives, and how far it is if it says so. It never goes back within a start.
pub(crate) fn put_life(tx: &mut Tx<'_>, id: StartId, rank: u32, step: Option<i64>) -> Result<()> {
    let step = step.unwrap_or(0);
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_progress (job, task, rank, attempt, step, at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (job, task, rank) DO UPDATE SET attempt = excluded.attempt,
             at = excluded.at,
             step = CASE WHEN training_progress.attempt = excluded.attempt
                         AND training_progress.step >= excluded.step
                         THEN training_progress.step ELSE excluded.step END",
        &params![id.task.job, id.task.task, rank, id.attempt, step, now],
    )
    .map(drop)
}

/// How far the ranks of a start are, and when they last said something.
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
        step: row.get("step")?,
        attempt: row.get("attempt")?,
        path: row.get("path")?,
        manifest: serde_json::from_str(&manifest).map_err(Error::internal)?,
        whole_at: row.get("whole_at")?,
        broken: row.get("broken")?,
    })
}
