//! Summaries in the database: one row of each start, written together.

use std::collections::BTreeMap;

use falaj_base::{Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, Value, params};

use super::hints::Asked;
use super::summary::Summary;
use crate::name::{JobId, StartId, TaskId};

/// `open` is 1 until the start has ended. `idle_since` is set while its rule finds it idle.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_telemetry (
        job TEXT NOT NULL, task INTEGER NOT NULL, attempt INTEGER NOT NULL, project TEXT NOT NULL,
        open INTEGER NOT NULL, idle_since INTEGER, summary TEXT NOT NULL,
        updated_at INTEGER NOT NULL, PRIMARY KEY (job, task, attempt));
    CREATE INDEX training_telemetry_open ON training_telemetry (open, idle_since);
    CREATE INDEX training_telemetry_old ON training_telemetry (updated_at);";

/// Those that are idle are asked for by project.
pub(crate) const BY_PROJECT: &str = "
    CREATE INDEX training_telemetry_idle ON training_telemetry (project, open, idle_since);
    CREATE INDEX training_job_named ON training_job (project, name, id);";

/// A summary on its way in.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) id: StartId,
    pub(crate) project: ProjectId,
    pub(crate) open: bool,
    pub(crate) idle_since: Option<Timestamp>,
    pub(crate) summary: Summary,
}

pub(crate) fn put(tx: &mut Tx<'_>, rows: &[Kept]) -> Result<()> {
    let now = tx.now();
    let row = |kept: &Kept| {
        let summary = serde_json::to_string(&kept.summary).map_err(Error::internal)?;
        let TaskId { job, task } = kept.id.task;
        Ok(params![
            job,
            task,
            kept.id.attempt,
            kept.project,
            kept.open,
            kept.idle_since,
            summary,
            now
        ])
    };
    let rows: Vec<[Value; 8]> = rows.iter().map(row).collect::<Result<_>>()?;
    tx.execute_many(
        "INSERT INTO training_telemetry (job, task, attempt, project, open, idle_since, summary,
             updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (job, task, attempt) DO UPDATE SET open = excluded.open,
             idle_since = excluded.idle_since, summary = excluded.summary,
             updated_at = excluded.updated_at",
        rows.into_iter(),
    )
    .map(drop)
}

/// Summaries of starts that had not ended when they were written.
pub(crate) fn open(tx: &mut Tx<'_>) -> Result<Vec<(StartId, ProjectId, bool, Summary)>> {
    let sql = "SELECT job, task, attempt, project, idle_since, summary FROM training_telemetry
               WHERE open = 1";
    let rows = tx.query(sql, &[])?;
    let read = |row: &Row| -> Result<_> {
        let idle: Option<Timestamp> = row.get("idle_since")?;
        Ok((start(row)?, row.get("project")?, idle.is_some(), summary(row)?))
    };
    // One that nobody understands any more begins anew.
    Ok(rows.iter().filter_map(|row| read(row).ok()).collect())
}

/// A start, whether it goes on, since when it is idle, and what it used.
pub(crate) type Found = (StartId, bool, Option<Timestamp>, Summary);

/// Summaries of the starts of a job, the newest first.
pub(crate) fn of_job(
    tx: &mut Tx<'_>,
    job: JobId,
    task: Option<u32>,
    limit: usize,
) -> Result<Vec<Found>> {
    let sql = "SELECT job, task, attempt, open, idle_since, summary FROM training_telemetry
               WHERE job = $1 AND (CAST($2 AS BIGINT) < 0 OR task = $2)
               ORDER BY task, attempt DESC LIMIT $3";
    let task = task.map_or(-1, i64::from);
    let rows = tx.query(sql, &params![job, task, limit])?;
    let read =
        |row: &Row| Ok((start(row)?, row.get("open")?, row.get("idle_since")?, summary(row)?));
    rows.iter().map(read).collect()
}

/// Since when jobs of a project are idle, by their first start that is.
pub(crate) fn idle(tx: &mut Tx<'_>, project: ProjectId) -> Result<BTreeMap<JobId, Timestamp>> {
    let sql = "SELECT job, MIN(idle_since) AS since FROM training_telemetry
               WHERE open = 1 AND idle_since IS NOT NULL AND project = $1 GROUP BY job LIMIT 10000";
    let rows = tx.query(sql, &params![project])?;
    rows.iter().map(|row| Ok((row.get("job")?, row.get("since")?))).collect()
}

/// What was used by starts that have ended, for hints.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) job: JobId,
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) asked: Option<Asked>,
    pub(crate) state: String,
    pub(crate) ran_seconds: f64,
    pub(crate) nodes: u32,
    pub(crate) price: u64,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) peak_memory: Option<u64>,
    /// Whether a rank ended for want of memory.
    pub(crate) out_of_memory: bool,
    pub(crate) summary: Option<Summary>,
}

/// Whose starts are looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Of {
    /// Only jobs of this name.
    pub(crate) name: Option<String>,
    /// Only jobs of this queue.
    pub(crate) queue: Option<String>,
}

/// Ended starts of a project, the newest jobs first: of so many, so many of each name.
///
/// Definitions are large, and many starts may have the same: each is read once, and what matters of it
/// is kept.
pub(crate) fn past(
    tx: &mut Tx<'_>,
    project: ProjectId,
    of: &Of,
    (looked_at, of_each): (usize, usize),
) -> Result<Vec<Past>> {
    let sql = "SELECT n.job AS job, n.name AS name, n.queue AS queue,
                   a.state AS state, a.placement AS placement, a.started_at AS started_at,
                   a.ended_at AS ended_at, a.price AS price, a.cpu_seconds AS cpu_seconds,
                   a.peak_memory AS peak_memory, a.ending AS ending, t.summary AS summary
               FROM (SELECT job, task, attempt, name, queue, ROW_NUMBER() OVER (
                             PARTITION BY name ORDER BY job DESC, task DESC, attempt DESC) AS place
                     FROM (SELECT j.id AS job, a.task AS task, a.attempt AS attempt,
                               j.name AS name, j.queue AS queue
                           FROM training_job AS j JOIN training_attempt AS a ON a.job = j.id
                           WHERE j.project = $1 AND a.ended_at IS NOT NULL
                               AND ($2 = '' OR j.name = $2) AND ($3 = '' OR j.queue = $3)
                           ORDER BY j.id DESC, a.task DESC, a.attempt DESC LIMIT $4) AS newest
                   ) AS n
                   JOIN training_attempt AS a
                       ON a.job = n.job AND a.task = n.task AND a.attempt = n.attempt
                   LEFT JOIN training_telemetry AS t
                       ON t.job = n.job AND t.task = n.task AND t.attempt = n.attempt
               WHERE n.place <= $5
               ORDER BY n.job DESC, n.task DESC, n.attempt DESC";
    let (name, queue) = (of.name.as_deref().unwrap_or(""), of.queue.as_deref().unwrap_or(""));
    let mut found = Vec::new();
    tx.scan(sql, &params![project, name, queue, looked_at, of_each], |row| {
        found.push(read_past(&row)?);
        Ok(())
    })?;
    let mut asked: Option<(JobId, Option<Asked>)> = None;
    for start in &mut found {
        // Starts of one job follow each other.
        if asked.as_ref().is_none_or(|(job, _)| *job != start.job) {
            asked = Some((start.job, asked_of(tx, start.job)?));
        }
        start.asked = asked.as_ref().and_then(|(_, asked)| asked.clone());
    }
    Ok(found)
}

/// What a job asks for; nothing if nobody understands its definition any more.
fn asked_of(tx: &mut Tx<'_>, job: JobId) -> Result<Option<Asked>> {
    let sql = "SELECT definition FROM training_job WHERE id = $1";
    let Some(row) = tx.query_opt(sql, &params![job])? else { return Ok(None) };
    let text: String = row.get("definition")?;
    Ok(serde_json::from_str(&text).ok().map(|definition| Asked::of(&definition)))
}

fn read_past(row: &Row) -> Result<Past> {
    let (from, to): (Timestamp, Timestamp) = (row.get("started_at")?, row.get("ended_at")?);
    let placement: String = row.get("placement")?;
    let nodes: Vec<crate::job::PlacedAt> =
        serde_json::from_str(&placement).map_err(Error::internal)?;
    let summary: Option<String> = row.get("summary")?;
    let ending: Option<String> = row.get("ending")?;
    Ok(Past {
        job: row.get("job")?,
        name: row.get("name")?,
        queue: row.get("queue")?,
        asked: None,
        state: row.get("state")?,
        ran_seconds: to.since(from).as_secs_f64(),
        nodes: u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX),
        price: row.get("price")?,
        cpu_seconds: row.get("cpu_seconds")?,
        peak_memory: row.get("peak_memory")?,
        out_of_memory: ending.is_some_and(|text| text.ends_with(crate::live::OUT_OF_MEMORY)),
        summary: summary.and_then(|text| serde_json::from_str(&text).ok()),
    })
}

/// Forgets summaries of starts that ended before a time; tells how many.
pub(crate) fn trim(tx: &mut Tx<'_>, before: Timestamp, limit: usize) -> Result<u64> {
    tx.execute(
        "DELETE FROM training_telemetry WHERE (job, task, attempt) IN (
             SELECT job, task, attempt FROM training_telemetry
             WHERE updated_at < $1 AND open = 0 ORDER BY updated_at LIMIT $2)",
        &params![before, limit],
    )
}

fn start(row: &Row) -> Result<StartId> {
    let task = TaskId { job: row.get("job")?, task: row.get("task")? };
    Ok(StartId { task, attempt: row.get("attempt")? })
}

fn summary(row: &Row) -> Result<Summary> {
    let text: String = row.get("summary")?;
    serde_json::from_str(&text).map_err(Error::internal)
}
