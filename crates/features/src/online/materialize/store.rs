//! Jobs in the database.

use std::time::Duration;

use falaj_base::{Error, ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::job::{Job, JobId, JobState, JobView, Progress};
use crate::definition::VersionId;
use crate::name::FeatureName;

/// `store` is what the online store calls itself. A job belongs to its `runner` until `not_before`,
/// and to nobody before that time if it has none. `feature_brought` tells how far the rows of a view
/// were brought into a store.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_job (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE,
        project TEXT NOT NULL REFERENCES project (id), tenant TEXT NOT NULL, store TEXT NOT NULL,
        state TEXT NOT NULL, error TEXT, attempts INTEGER NOT NULL, runner TEXT,
        not_before INTEGER NOT NULL, created_at INTEGER NOT NULL, created_by TEXT NOT NULL,
        started_at INTEGER, finished_at INTEGER);
    CREATE INDEX feature_job_project ON feature_job (project, id);
    CREATE INDEX feature_job_state ON feature_job (state, store, tenant, id);
    CREATE TABLE feature_job_view (
        job TEXT NOT NULL, place INTEGER NOT NULL, version INTEGER NOT NULL,
        rows_of INTEGER NOT NULL, state TEXT NOT NULL, error TEXT, starts INTEGER,
        ends INTEGER NOT NULL, plan TEXT, seen INTEGER NOT NULL, total INTEGER NOT NULL,
        rows INTEGER NOT NULL, placed INTEGER NOT NULL, file INTEGER NOT NULL,
        files INTEGER NOT NULL, PRIMARY KEY (job, place)) CLUSTERED;
    CREATE TABLE feature_brought (
        store TEXT NOT NULL, view INTEGER NOT NULL, until INTEGER NOT NULL, rows INTEGER NOT NULL,
        at INTEGER NOT NULL, PRIMARY KEY (store, view)) CLUSTERED;
    DROP TABLE feature_materialized;";

/// How many jobs of a project that are over are remembered.
const REMEMBERED: usize = 1000;

const COLUMNS: &str = "id, number, project, store, state, error, attempts, created_at, \
     created_by, started_at, finished_at";

/// How far the rows of a view were brought into a store.
pub(super) fn brought(tx: &mut Tx<'_>, store: &str, view: VersionId) -> Result<Option<Timestamp>> {
    let sql = "SELECT until FROM feature_brought WHERE store = $1 AND view = $2";
    tx.query_opt(sql, &params![store, view])?.map(|row| row.get("until")).transpose()
}

/// Puts down how far the rows of a view were brought; never less far than before.
pub(super) fn note_brought(
    tx: &mut Tx<'_>,
    store: &str,
    view: VersionId,
    until: Timestamp,
    rows: u64,
) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO feature_brought (store, view, until, rows, at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (store, view) DO UPDATE SET
             until = CASE WHEN excluded.until > feature_brought.until
                 THEN excluded.until ELSE feature_brought.until END,
             rows = excluded.rows, at = excluded.at",
        &params![store, view, until, rows, now],
    )
    .map(drop)
}

/// A view of a job about to be put down.
pub(super) struct NewView {
    pub(super) version: VersionId,
    pub(super) rows_of: VersionId,
    pub(super) from: Option<Timestamp>,
    pub(super) to: Timestamp,
}

/// A job about to be put down.
pub(super) struct New<'a> {
    pub(super) id: JobId,
    pub(super) project: ProjectId,
    pub(super) tenant: TenantId,
    pub(super) store: &'a str,
    pub(super) by: &'a str,
    /// Who runs it from the start, and until when.
    pub(super) runner: Option<(&'a str, Timestamp)>,
}

pub(super) fn insert(tx: &mut Tx<'_>, new: &New<'_>, views: &[NewView]) -> Result<()> {
    let sql = "SELECT COALESCE(MAX(number), 0) + 1 AS n FROM feature_job";
    tx.lock("feature-job-numbers")?;
    let number: i64 = tx.query_one(sql, &[])?.get("n")?;
    let (now, runner) = (tx.now(), new.runner.map(|(runner, _)| runner));
    let state = if runner.is_some() { JobState::Running } else { JobState::Waiting };
    let not_before = new.runner.map_or(Timestamp::from_micros(0), |(_, until)| until);
    tx.execute(
        "INSERT INTO feature_job (id, number, project, tenant, store, state, attempts, runner,
             not_before, created_at, created_by, started_at)
         VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, $9, $10, $11)",
        &params![
            new.id,
            number,
            new.project,
            new.tenant,
            new.store,
            state.as_str(),
            runner,
            not_before,
            now,
            new.by,
            runner.map(|_| now)
        ],
    )?;
    let waiting = JobState::Waiting.as_str();
    let rows = views.iter().zip(0_i64..).map(|(view, place)| {
        let NewView { version, rows_of, from, to } = view;
        params![new.id, place, *version, *rows_of, waiting, *from, *to].to_vec()
    });
    tx.execute_many(
        "INSERT INTO feature_job_view (job, place, version, rows_of, state, starts, ends, seen,
             total, rows, placed, file, files)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, 0, 0)",
        rows,
    )?;
    forget(tx, new.project)
}

/// How long a job waits for a server that has its store.
const ABANDONED: Duration = Duration::from_hours(24);

/// Forgets the oldest jobs of a project that are over, and ends those that nobody took up: a store
/// may be gone for good.
fn forget(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    let (now, before) = (tx.now(), tx.now() - ABANDONED);
    tx.execute(
        "UPDATE feature_job SET state = 'failed', finished_at = $2,
             error = 'no server that has its online store took it up'
         WHERE project = $1 AND state IN ('waiting', 'running') AND created_at < $3
             AND not_before < $3",
        &params![project, now, before],
    )?;
    let row = tx.query_opt(
        "SELECT id FROM feature_job WHERE project = $1
             AND state IN ('done', 'failed', 'cancelled')
         ORDER BY id DESC LIMIT 1 OFFSET $2",
        &params![project, REMEMBERED],
    )?;
    let Some(row) = row else { return Ok(()) };
    let last: String = row.get("id")?;
    let old = "SELECT id FROM feature_job WHERE project = $1 AND id <= $2
         AND state IN ('done', 'failed', 'cancelled')";
    let values = params![project, last];
    tx.execute(&format!("DELETE FROM feature_job_view WHERE job IN ({old})"), &values)?;
    tx.execute(&format!("DELETE FROM feature_job WHERE id IN ({old})"), &values).map(drop)
}

/// The job that brings these rows into a store already, if there is one.
pub(super) fn underway(tx: &mut Tx<'_>, store: &str, rows_of: VersionId) -> Result<Option<JobId>> {
    let row = tx.query_opt(
        "SELECT j.id FROM feature_job AS j JOIN feature_job_view AS v ON v.job = j.id
         WHERE j.state IN ('waiting', 'running') AND j.store = $1 AND v.rows_of = $2
             AND v.state IN ('waiting', 'running') LIMIT 1",
        &params![store, rows_of],
    )?;
    row.map(|row| row.get("id")).transpose()
}

/// How many jobs of a project are not over.
pub(super) fn unfinished(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM feature_job
         WHERE state IN ('waiting', 'running') AND project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

/// Gives back jobs of a store that were run by somebody who cannot be any more.
pub(super) fn orphaned(tx: &mut Tx<'_>, store: &str, runner: &str) -> Result<u64> {
    tx.execute(
        "UPDATE feature_job SET state = 'waiting', runner = NULL, not_before = 0
         WHERE state = 'running' AND store = $1 AND runner <> $2",
        &params![store, runner],
    )
}

/// The oldest job of each tenant that may be begun.
pub(super) fn waiting(tx: &mut Tx<'_>, store: &str) -> Result<Vec<(TenantId, JobId)>> {
    let now = tx.now();
    let rows = tx.query(
        "SELECT tenant, MIN(id) AS id FROM feature_job
         WHERE state IN ('waiting', 'running') AND store = $1 AND not_before < $2
         GROUP BY tenant ORDER BY 2",
        &params![store, now],
    )?;
    rows.iter().map(|row| Ok((row.get("tenant")?, row.get("id")?))).collect()
}

/// Takes a job until a time; false if somebody else has it, or nobody wants it any more.
pub(super) fn claim(tx: &mut Tx<'_>, id: JobId, runner: &str, until: Timestamp) -> Result<bool> {
    let now = tx.now();
    let taken = tx.execute(
        "UPDATE feature_job SET state = 'running', runner = $2, not_before = $3,
             attempts = attempts + 1, started_at = COALESCE(started_at, $4)
         WHERE id = $1 AND state IN ('waiting', 'running') AND not_before < $4",
        &params![id, runner, until, now],
    )?;
    Ok(taken == 1)
}

/// Keeps a job until a later time; false if it is no longer the runner's.
pub(super) fn renew(tx: &mut Tx<'_>, id: JobId, runner: &str, until: Timestamp) -> Result<bool> {
    let kept = tx.execute(
        "UPDATE feature_job SET not_before = $3
         WHERE id = $1 AND state = 'running' AND runner = $2",
        &params![id, runner, until],
    )?;
    Ok(kept == 1)
}

/// Gives a job back, to be begun again at a time.
pub(super) fn give_back(tx: &mut Tx<'_>, id: JobId, runner: &str, at: Timestamp) -> Result<()> {
    tx.execute(
        "UPDATE feature_job SET state = 'waiting', runner = NULL, not_before = $3
         WHERE id = $1 AND state = 'running' AND runner = $2",
        &params![id, runner, at],
    )
    .map(drop)
}

/// Puts down how far a view is, over what was found to be read.
pub(super) fn save(tx: &mut Tx<'_>, id: JobId, view: &JobView) -> Result<()> {
    let Progress { read, total, rows, placed, file, files } = view.progress;
    tx.execute(
        "UPDATE feature_job_view SET state = $3, plan = $4, seen = $5, total = $6, rows = $7,
             placed = $8, file = $9, files = $10, error = $11 WHERE job = $1 AND place = $2",
        &params![
            id,
            view.place,
            view.state.as_str(),
            view.plan.as_deref(),
            read,
            total,
            rows,
            placed,
            file,
            files,
            view.error.as_deref()
        ],
    )
    .map(drop)
}

/// Whatever stopped a job before, it has come further since.
pub(super) fn came_further(tx: &mut Tx<'_>, id: JobId) -> Result<()> {
    tx.execute("UPDATE feature_job SET attempts = 0 WHERE id = $1", &params![id]).map(drop)
}

/// Ends a job; false if it was over already.
pub(super) fn end(
    tx: &mut Tx<'_>,
    id: JobId,
    state: JobState,
    error: Option<&str>,
) -> Result<bool> {
    let now = tx.now();
    let ended = tx.execute(
        "UPDATE feature_job SET state = $2, error = $3, finished_at = $4, runner = NULL
         WHERE id = $1 AND state IN ('waiting', 'running')",
        &params![id, state.as_str(), error, now],
    )?;
    tx.execute(
        "UPDATE feature_job_view SET state = $2 WHERE job = $1 AND state IN ('waiting', 'running')",
        &params![id, if state == JobState::Done { "done" } else { "cancelled" }],
    )?;
    Ok(ended == 1)
}

pub(super) fn find(tx: &mut Tx<'_>, id: JobId) -> Result<Option<Job>> {
    let sql = format!("SELECT {COLUMNS} FROM feature_job WHERE id = $1");
    let Some(row) = tx.query_opt(&sql, &params![id])? else { return Ok(None) };
    let mut job = read(&row)?;
    job.views = views(tx, id)?;
    Ok(Some(job))
}

/// Those of a project, the newest first, before one.
pub(super) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    before: &str,
    limit: usize,
) -> Result<Vec<Job>> {
    let before = if before.is_empty() { "~" } else { before };
    let sql = format!(
        "SELECT {COLUMNS} FROM feature_job WHERE project = $1 AND id < $2
         ORDER BY id DESC LIMIT $3"
    );
    let rows = tx.query(&sql, &params![project, before, limit])?;
    let mut jobs = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    for job in &mut jobs {
        job.views = views(tx, job.id)?;
    }
    Ok(jobs)
}

fn state(row: &Row) -> Result<JobState> {
    let text: String = row.get("state")?;
    JobState::parse(&text).ok_or_else(|| Error::internal(format!("a job in the state {text}")))
}

fn read(row: &Row) -> Result<Job> {
    Ok(Job {
        id: row.get("id")?,
        state: state(row)?,
        error: row.get("error")?,
        views: Vec::new(),
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        started_at: row.get("started_at")?,
        finished_at: row.get("finished_at")?,
        number: row.get("number")?,
        project: row.get("project")?,
        store: row.get("store")?,
        attempts: row.get("attempts")?,
    })
}

fn views(tx: &mut Tx<'_>, id: JobId) -> Result<Vec<JobView>> {
    let rows = tx.query(
        "SELECT j.place, j.version AS version_id, j.rows_of, j.state, j.error, j.starts, j.ends,
             j.plan, j.seen, j.total, j.rows, j.placed, j.file, j.files, v.name, v.version
         FROM feature_job_view AS j JOIN feature_version AS v ON v.id = j.version
         WHERE j.job = $1 ORDER BY j.place",
        &params![id],
    )?;
    let one = |row: &Row| {
        let name: String = row.get("name")?;
        Ok(JobView {
            view: FeatureName::new(name).map_err(Error::internal)?,
            version: row.get("version")?,
            state: state(row)?,
            error: row.get("error")?,
            from: row.get("starts")?,
            to: row.get("ends")?,
            progress: Progress {
                read: row.get("seen")?,
                total: row.get("total")?,
                rows: row.get("rows")?,
                placed: row.get("placed")?,
                file: row.get("file")?,
                files: row.get("files")?,
            },
            place: row.get("place")?,
            id: row.get("version_id")?,
            rows_of: row.get("rows_of")?,
            plan: row.get("plan")?,
        })
    };
    rows.iter().map(one).collect()
}
