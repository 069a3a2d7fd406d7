//! Jobs, tasks, starts and decisions in the database.

use falaj_base::{Error, Name, ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::attempt::{Attempt, Decided};
use super::job::{Job, Owner};
use super::state::{State, Tally};
use crate::cost::Rates;
use crate::name::{JobId, QueueName, StartId, TaskId};

/// `live` is 1 until a job is over. A task has a row once it has started. `open` of a start is 2 until
/// it has ended, 1 until what follows from that is done (its output is kept, its token ended), then 0.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_job (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL REFERENCES project (id),
        name TEXT NOT NULL, queue TEXT NOT NULL, pool TEXT NOT NULL, definition TEXT NOT NULL,
        zones TEXT NOT NULL, state TEXT NOT NULL, live INTEGER NOT NULL, tasks INTEGER NOT NULL,
        succeeded INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL,
        lost INTEGER NOT NULL, run TEXT, experiment TEXT, reason TEXT, principal TEXT NOT NULL,
        home TEXT, is_system INTEGER NOT NULL, created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL, started_at INTEGER, ended_at INTEGER, cancel_at INTEGER);
    CREATE INDEX training_job_listed ON training_job (project, id);
    CREATE INDEX training_job_live ON training_job (live, project, tasks);
    CREATE INDEX training_job_queue ON training_job (tenant, queue, live);
    CREATE TABLE training_task (
        job TEXT NOT NULL REFERENCES training_job (id), task INTEGER NOT NULL, state TEXT NOT NULL,
        attempts INTEGER NOT NULL, failures INTEGER NOT NULL, losses INTEGER NOT NULL,
        ran_ms INTEGER NOT NULL, run TEXT, reason TEXT, changed_at INTEGER NOT NULL,
        PRIMARY KEY (job, task)) CLUSTERED;
    CREATE TABLE training_attempt (
        job TEXT NOT NULL REFERENCES training_job (id), task INTEGER NOT NULL,
        attempt INTEGER NOT NULL, open INTEGER NOT NULL, state TEXT NOT NULL, pool TEXT NOT NULL,
        placement TEXT NOT NULL, world INTEGER NOT NULL, cpu INTEGER NOT NULL,
        memory INTEGER NOT NULL, gpu INTEGER NOT NULL, price INTEGER NOT NULL,
        isolation TEXT, resumed INTEGER,
        purpose TEXT, ending TEXT, exit_code INTEGER, token TEXT, started_at INTEGER NOT NULL,
        ended_at INTEGER, cpu_seconds REAL, peak_memory INTEGER, logs TEXT, stacks TEXT,
        PRIMARY KEY (job, task, attempt));
    CREATE INDEX training_attempt_open ON training_attempt (open);
    CREATE TABLE training_decision (
        job TEXT NOT NULL, id TEXT NOT NULL, task INTEGER NOT NULL, at INTEGER NOT NULL,
        kind TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (job, id)) CLUSTERED;
    CREATE INDEX training_decision_at ON training_decision (at);";

/// Which server's own machine runs a start, and which server schedules.
pub(crate) const SERVERS: &str = "
    ALTER TABLE training_attempt ADD COLUMN server TEXT;
    ALTER TABLE training_leader ADD COLUMN server TEXT;";

/// How often a task gave up its nodes in a row for using nothing of them, and before when it is not in
/// line again.
pub(crate) const RECLAIMS: &str = "
    ALTER TABLE training_task ADD COLUMN reclaims INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE training_task ADD COLUMN aside_until INTEGER;";

const COLUMNS: &str = "id, tenant, project, name, queue, pool, definition, zones, state, tasks,
    succeeded, failed, cancelled, lost, run, experiment, reason, principal, home, is_system,
    created_at, created_by, started_at, ended_at, cancel_at";

pub(crate) fn insert(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let definition = serde_json::to_string(&job.definition).map_err(Error::internal)?;
    let zones = serde_json::to_string(&job.zones).map_err(Error::internal)?;
    let queue = job.definition.queue.as_ref().map_or("", |name| name.as_str());
    tx.put(
        "INSERT INTO training_job (id, tenant, project, name, queue, pool, definition, zones,
             state, live, tasks, succeeded, failed, cancelled, lost, run, experiment, principal,
             home, is_system, created_at, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10, 0, 0, 0, 0, $11, $12, $13, $14, $15,
             $16, $17)",
        &params![
            job.id,
            job.tenant,
            job.project,
            &job.name,
            queue,
            &job.pool,
            definition,
            zones,
            job.state,
            job.tasks.count,
            job.run_id.as_ref(),
            job.experiment_id.as_ref(),
            job.owner.id,
            job.owner.home,
            job.owner.is_system,
            job.created_at,
            &job.created_by
        ],
    )
}

pub(crate) fn find(tx: &mut Tx<'_>, project: ProjectId, id: JobId) -> Result<Option<Job>> {
    let sql = format!("SELECT {COLUMNS} FROM training_job WHERE id = $1 AND project = $2");
    tx.query_opt(&sql, &params![id, project])?.as_ref().map(read).transpose()
}

pub(crate) fn by_id(tx: &mut Tx<'_>, id: JobId) -> Result<Option<Job>> {
    let sql = format!("SELECT {COLUMNS} FROM training_job WHERE id = $1");
    tx.query_opt(&sql, &params![id])?.as_ref().map(read).transpose()
}

pub(crate) fn is_there(tx: &mut Tx<'_>, id: JobId) -> Result<bool> {
    let sql = "SELECT 1 AS one FROM training_job WHERE id = $1";
    Ok(tx.query_opt(sql, &params![id])?.is_some())
}

/// The jobs of a project, the newest first, from before `before` on.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    before: &str,
    (state, idle): (Option<State>, bool),
    limit: usize,
) -> Result<Vec<Job>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_job
         WHERE project = $1 AND ($2 = '' OR id < $2) AND ($3 = '' OR state = $3)
             AND ($4 = 0 OR id IN (SELECT job FROM training_telemetry
                 WHERE project = $1 AND open = 1 AND idle_since IS NOT NULL))
         ORDER BY id DESC LIMIT $5"
    );
    let state = state.map_or("", State::as_str);
    tx.query(&sql, &params![project, before, state, idle, limit])?.iter().map(read).collect()
}

/// One job; nothing, too, if it cannot be read.
pub(crate) fn by_id_if_readable(tx: &mut Tx<'_>, id: JobId) -> Result<Option<Job>> {
    let sql = format!("SELECT {COLUMNS} FROM training_job WHERE id = $1");
    let row = tx.query_opt(&sql, &params![id])?;
    Ok(row.and_then(|row| readable(&row, "id", read(&row))))
}

/// Jobs that are not over, by id, after one, and the id of the last one. Those that cannot be read
/// are passed over: they must not keep all others from going on.
pub(crate) fn live(
    tx: &mut Tx<'_>,
    after: &str,
    limit: usize,
) -> Result<(Vec<Job>, Option<String>)> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_job WHERE live = 1 AND id > $1 ORDER BY id LIMIT $2"
    );
    let rows = tx.query(&sql, &params![after, limit])?;
    let last = rows.last().map(|row| row.get("id")).transpose()?;
    Ok((rows.iter().filter_map(|row| readable(row, "id", read(row))).collect(), last))
}

/// What a row holds, unless it holds what nobody understands (any more).
fn readable<T>(row: &Row, id: &str, found: Result<T>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            let job: String = row.get(id).unwrap_or_default();
            tracing::error!(job, error = error.chain(), "a row of a job cannot be read");
            None
        }
    }
}

/// Tasks of a project that may still run.
pub(crate) fn unfinished(tx: &mut Tx<'_>, project: ProjectId) -> Result<u64> {
    let sql = "SELECT CAST(COALESCE(SUM(tasks), 0) AS BIGINT) AS n FROM training_job
               WHERE live = 1 AND project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

pub(crate) fn unfinished_in(tx: &mut Tx<'_>, tenant: TenantId, queue: &QueueName) -> Result<u64> {
    let sql = "SELECT COUNT(*) AS n FROM training_job
               WHERE tenant = $1 AND queue = $2 AND live = 1";
    tx.query_one(sql, &params![tenant, queue.as_str()])?.get("n")
}

pub(crate) fn ask_to_cancel(tx: &mut Tx<'_>, id: JobId) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE training_job SET cancel_at = $2 WHERE id = $1 AND live = 1 AND cancel_at IS NULL",
        &params![id, now],
    )?;
    Ok(changed == 1)
}

/// Writes how far a job has come.
pub(crate) fn progress(
    tx: &mut Tx<'_>,
    id: JobId,
    (state, tally): (State, &Tally),
    reason: Option<&str>,
) -> Result<()> {
    let now = tx.now();
    let over = state.is_over();
    tx.execute(
        "UPDATE training_job SET state = $2, live = $3, succeeded = $4, failed = $5,
             cancelled = $6, lost = $7, reason = $8, started_at = COALESCE(started_at, $9),
             ended_at = $10
         WHERE id = $1 AND live = 1",
        &params![
            id,
            state,
            !over,
            tally.succeeded,
            tally.failed,
            tally.cancelled,
            tally.lost,
            reason,
            state.is_placed().then_some(now),
            over.then_some(now)
        ],
    )?;
    if over { crate::checkpoint::store::collect(tx, id) } else { Ok(()) }
}

fn read(row: &Row) -> Result<Job> {
    let definition: String = row.get("definition")?;
    let zones: String = row.get("zones")?;
    Ok(Job {
        id: row.get("id")?,
        name: row.get("name")?,
        state: row.get("state")?,
        reason: row.get("reason")?,
        pool: row.get("pool")?,
        zones: serde_json::from_str(&zones).map_err(Error::internal)?,
        tasks: Tally {
            count: row.get("tasks")?,
            succeeded: row.get("succeeded")?,
            failed: row.get("failed")?,
            cancelled: row.get("cancelled")?,
            lost: row.get("lost")?,
        },
        run_id: row.get("run")?,
        experiment_id: row.get("experiment")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        cancel_requested_at: row.get("cancel_at")?,
        idle_since: None,
        definition: serde_json::from_str(&definition).map_err(Error::internal)?,
        tenant: row.get("tenant")?,
        project: row.get("project")?,
        owner: Owner {
            id: row.get("principal")?,
            home: row.get("home")?,
            is_system: row.get("is_system")?,
        },
    })
}

/// What is kept of a task that has started.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskRow {
    pub(crate) attempts: u32,
    pub(crate) failures: u32,
    pub(crate) losses: u32,
    pub(crate) ran_ms: u64,
    /// Starts in a row that used nothing of what they had and were told to leave it.
    pub(crate) reclaims: u32,
    /// Before when it is not in line again, if the last one was told so.
    pub(crate) aside_until: Option<Timestamp>,
    pub(crate) run: Option<String>,
    pub(crate) reason: Option<String>,
}

const TASK: &str =
    "task, state, attempts, failures, losses, ran_ms, run, reason, reclaims, aside_until";

pub(crate) fn put_task(tx: &mut Tx<'_>, id: TaskId, state: State, task: &TaskRow) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_task (job, task, state, attempts, failures, losses, ran_ms, run,
             reason, changed_at, reclaims, aside_until)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (job, task) DO UPDATE SET state = excluded.state,
             attempts = excluded.attempts, failures = excluded.failures, losses = excluded.losses,
             ran_ms = excluded.ran_ms, run = COALESCE(excluded.run, training_task.run),
             reason = excluded.reason, changed_at = excluded.changed_at,
             reclaims = excluded.reclaims, aside_until = excluded.aside_until",
        &params![
            id.job,
            id.task,
            state,
            task.attempts,
            task.failures,
            task.losses,
            task.ran_ms,
            task.run.as_ref(),
            task.reason.as_ref(),
            now,
            task.reclaims,
            task.aside_until
        ],
    )
    .map(drop)
}

/// The tasks of a job that have started.
pub(crate) fn tasks(tx: &mut Tx<'_>, job: JobId) -> Result<Vec<(u32, State, TaskRow)>> {
    let sql = format!("SELECT {TASK} FROM training_task WHERE job = $1 ORDER BY task");
    let mut found = Vec::new();
    tx.scan(&sql, &params![job], |row| {
        found.push((row.get("task")?, row.get("state")?, read_task(&row)?));
        Ok(())
    })?;
    Ok(found)
}

/// Tasks of a job that have started, or why one of them cannot be read.
pub(crate) type Readable = std::result::Result<Vec<(u32, State, TaskRow)>, String>;

/// The same, or why one of them cannot be read.
pub(crate) fn tasks_if_readable(tx: &mut Tx<'_>, job: JobId) -> Result<Readable> {
    let sql = format!("SELECT {TASK} FROM training_task WHERE job = $1 ORDER BY task");
    let rows = tx.query(&sql, &params![job])?;
    let read = |row: &Row| Ok((row.get("task")?, row.get("state")?, read_task(row)?));
    let all: Result<Vec<_>> = rows.iter().map(read).collect();
    Ok(all.map_err(|error| error.chain()))
}

/// Lets all tasks of a job fail that have not ended, whatever is kept of them.
pub(crate) fn fail_tasks(tx: &mut Tx<'_>, job: JobId) -> Result<()> {
    let sql = "UPDATE training_task SET state = $2
               WHERE job = $1 AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'LOST')";
    tx.execute(sql, &params![job, State::Failed]).map(drop)
}

/// One task, if it has started.
pub(crate) fn task(tx: &mut Tx<'_>, id: TaskId) -> Result<Option<(State, TaskRow)>> {
    let sql = format!("SELECT {TASK} FROM training_task WHERE job = $1 AND task = $2");
    let row = tx.query_opt(&sql, &params![id.job, id.task])?;
    row.map(|row| Ok((row.get("state")?, read_task(&row)?))).transpose()
}

fn read_task(row: &Row) -> Result<TaskRow> {
    Ok(TaskRow {
        attempts: row.get("attempts")?,
        failures: row.get("failures")?,
        losses: row.get("losses")?,
        ran_ms: row.get("ran_ms")?,
        reclaims: row.get("reclaims")?,
        aside_until: row.get("aside_until")?,
        run: row.get("run")?,
        reason: row.get("reason")?,
    })
}

/// Notes the run of a task of an array.
pub(crate) fn task_has_run(tx: &mut Tx<'_>, id: TaskId, run: &str) -> Result<()> {
    tx.execute(
        "UPDATE training_task SET run = $3 WHERE job = $1 AND task = $2",
        &params![id.job, id.task, run],
    )
    .map(drop)
}

/// A start as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct StartRow {
    pub(crate) id: StartId,
    pub(crate) open: i64,
    /// What it is to become once it has ended: see `live::flight::Purpose`.
    pub(crate) purpose: Option<String>,
    pub(crate) token: Option<String>,
    /// What it costs by the hour, in millionths.
    pub(crate) price: u64,
    /// What it has, in the order of the scheduler's measures: thousandths of a core, MiB, parts of GPUs.
    pub(crate) holds: [u64; 3],
    /// The server whose own machine runs it, if it is one.
    pub(crate) server: Option<String>,
    pub(crate) shown: Attempt,
    /// The blobs of its ranks' output, once they are kept.
    pub(crate) logs: Option<String>,
}

const START: &str =
    "job, task, attempt, open, state, pool, placement, world, cpu, memory, gpu, price, isolation, resumed,
    purpose, ending, exit_code, token, started_at, ended_at, cpu_seconds, peak_memory, logs,
    stacks, server";

pub(crate) fn insert_start(
    tx: &mut Tx<'_>,
    id: StartId,
    new: &Attempt,
    rates: &Rates,
    server: Option<&str>,
) -> Result<()> {
    let placement = serde_json::to_string(&new.nodes).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO training_attempt (job, task, attempt, open, state, pool, placement, world,
             cpu, memory, gpu, price, started_at, server)
         VALUES ($1, $2, $3, 2, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        &params![
            id.task.job,
            id.task.task,
            id.attempt,
            new.state,
            &new.pool,
            placement,
            new.world_size,
            rates.cpu_millis,
            rates.memory_mib,
            rates.gpu_parts,
            rates.price,
            new.started_at,
            server
        ],
    )
    .map(drop)
}

/// Writes how far a start that has not ended has come.
pub(crate) fn start_is(
    tx: &mut Tx<'_>,
    id: StartId,
    state: State,
    isolation: Option<&str>,
    purpose: Option<&str>,
) -> Result<()> {
    tx.execute(
        "UPDATE training_attempt SET state = $4, isolation = COALESCE($5, isolation), purpose = $6
         WHERE job = $1 AND task = $2 AND attempt = $3 AND open = 2",
        &params![id.task.job, id.task.task, id.attempt, state, isolation, purpose],
    )
    .map(drop)
}

/// Notes another token of a start: each launch that is tried has one.
pub(crate) fn add_token(tx: &mut Tx<'_>, id: StartId, token: &str) -> Result<()> {
    tx.execute(
        "UPDATE training_attempt SET token = CASE WHEN token IS NULL THEN $4
             ELSE token || ',' || $4 END
         WHERE job = $1 AND task = $2 AND attempt = $3",
        &params![id.task.job, id.task.task, id.attempt, token],
    )
    .map(drop)
}

/// Whether a token was given to a start of a job that has not ended.
pub(crate) fn has_token(tx: &mut Tx<'_>, job: JobId, token: &str) -> Result<bool> {
    let sql = "SELECT token FROM training_attempt
               WHERE job = $1 AND open = 2 AND token IS NOT NULL";
    let mut found = false;
    tx.scan(sql, &params![job], |row| {
        let text: String = row.get("token")?;
        found |= text.split(',').any(|own| own == token);
        Ok(())
    })?;
    Ok(found)
}

/// The job that a token was given to, while a start with it goes on.
pub(crate) fn job_of_token(tx: &mut Tx<'_>, token: &str) -> Result<Option<Job>> {
    let sql = "SELECT job FROM training_attempt WHERE open = 2 AND token LIKE $1";
    let row = tx.query_opt(sql, &params![format!("%{token}%")])?;
    match row {
        Some(row) => by_id(tx, row.get("job")?),
        None => Ok(None),
    }
}

/// Notes the step of the checkpoint that a start goes on from.
pub(crate) fn resumed(tx: &mut Tx<'_>, id: StartId, step: i64) -> Result<()> {
    tx.execute(
        "UPDATE training_attempt SET resumed = $4 WHERE job = $1 AND task = $2 AND attempt = $3",
        &params![id.task.job, id.task.task, id.attempt, step],
    )
    .map(drop)
}

/// How a start ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) state: State,
    pub(crate) ending: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) isolation: Option<String>,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) peak_memory: Option<u64>,
    pub(crate) stacks: Option<String>,
}

/// Ends a start. False if it had ended before.
pub(crate) fn end_start(tx: &mut Tx<'_>, id: StartId, at: Timestamp, end: &Ended) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE training_attempt SET open = 1, state = $4, ending = $5, exit_code = $6,
             isolation = COALESCE($7, isolation), cpu_seconds = $8, peak_memory = $9,
             stacks = $10, ended_at = $11
         WHERE job = $1 AND task = $2 AND attempt = $3 AND open = 2",
        &params![
            id.task.job,
            id.task.task,
            id.attempt,
            end.state,
            &end.ending,
            end.exit_code,
            end.isolation.as_ref(),
            end.cpu_seconds,
            end.peak_memory,
            end.stacks.as_ref(),
            at
        ],
    )?;
    Ok(changed == 1)
}

/// What followed from the end of a start is done.
pub(crate) fn close_start(tx: &mut Tx<'_>, id: StartId, logs: &str) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE training_attempt SET open = 0, logs = $4
         WHERE job = $1 AND task = $2 AND attempt = $3 AND open = 1",
        &params![id.task.job, id.task.task, id.attempt, logs],
    )?;
    Ok(changed == 1)
}

/// Whether a job has starts that go on, or whose end has not been seen to.
pub(crate) fn has_open_starts(tx: &mut Tx<'_>, job: JobId) -> Result<bool> {
    let sql = "SELECT 1 AS one FROM training_attempt WHERE job = $1 AND open > 0 LIMIT 1";
    Ok(tx.query_opt(sql, &params![job])?.is_some())
}

/// Some jobs that ended before a time, the oldest first.
pub(crate) fn ended_before(tx: &mut Tx<'_>, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
    let sql = "SELECT id FROM training_job WHERE live = 0 AND ended_at < $1
               ORDER BY ended_at LIMIT $2";
    tx.query(sql, &params![before, limit])?.iter().map(|row| row.get("id")).collect()
}

/// Whether a start of a job goes on, as far as is known, on the machine of a server that does not
/// schedule.
pub(crate) fn is_away(tx: &mut Tx<'_>, job: JobId) -> Result<bool> {
    let sql = "SELECT 1 AS one FROM training_attempt AS a JOIN training_leader AS l ON l.id = 1
               WHERE a.job = $1 AND a.open = 2 AND a.server IS NOT NULL AND l.server IS NOT NULL
                   AND a.server <> l.server LIMIT 1";
    Ok(tx.query_opt(sql, &params![job])?.is_some())
}

/// How open a start is; nothing if there is none.
pub(crate) fn open_of(tx: &mut Tx<'_>, id: StartId) -> Result<Option<i64>> {
    let sql = "SELECT open FROM training_attempt WHERE job = $1 AND task = $2 AND attempt = $3";
    let row = tx.query_opt(sql, &params![id.task.job, id.task.task, id.attempt])?;
    row.map(|row| row.get("open")).transpose()
}

/// All starts that have not ended, or whose end has not been seen to. One that cannot be read is
/// passed over: it must not keep all others from going on.
pub(crate) fn open_starts(tx: &mut Tx<'_>) -> Result<Vec<StartRow>> {
    let sql = format!("SELECT {START} FROM training_attempt WHERE open > 0");
    let now = tx.now();
    let rows = tx.query(&sql, &[])?;
    Ok(rows.iter().filter_map(|row| readable(row, "job", read_start(row, now))).collect())
}

/// The starts of a job, the oldest first; of one task if it is named.
pub(crate) fn starts(
    tx: &mut Tx<'_>,
    job: JobId,
    task: Option<u32>,
    after: (u32, u32),
    limit: usize,
) -> Result<Vec<StartRow>> {
    let sql = format!(
        "SELECT {START} FROM training_attempt
         WHERE job = $1 AND (CAST($2 AS BIGINT) < 0 OR task = $2) AND (task > $3 OR (task = $3 AND attempt > $4))
         ORDER BY task, attempt LIMIT $5"
    );
    let task = task.map_or(-1, i64::from);
    let rows = tx.query(&sql, &params![job, task, after.0, after.1, limit])?;
    let now = tx.now();
    rows.iter().map(|row| read_start(row, now)).collect()
}

/// One start; the last of its task if no number is given.
pub(crate) fn find_start(
    tx: &mut Tx<'_>,
    task: TaskId,
    attempt: Option<u32>,
) -> Result<Option<StartRow>> {
    let sql = format!(
        "SELECT {START} FROM training_attempt
         WHERE job = $1 AND task = $2 AND (CAST($3 AS BIGINT) < 0 OR attempt = $3)
         ORDER BY attempt DESC LIMIT 1"
    );
    let attempt = attempt.map_or(-1, i64::from);
    let row = tx.query_opt(&sql, &params![task.job, task.task, attempt])?;
    let now = tx.now();
    row.as_ref().map(|row| read_start(row, now)).transpose()
}

fn read_start(row: &Row, now: Timestamp) -> Result<StartRow> {
    let placement: String = row.get("placement")?;
    let (started_at, ended_at): (Timestamp, Option<Timestamp>) =
        (row.get("started_at")?, row.get("ended_at")?);
    let task = TaskId { job: row.get("job")?, task: row.get("task")? };
    let id = StartId { task, attempt: row.get("attempt")? };
    Ok(StartRow {
        id,
        open: row.get("open")?,
        purpose: row.get("purpose")?,
        token: row.get("token")?,
        logs: row.get("logs")?,
        price: row.get("price")?,
        holds: [row.get("cpu")?, row.get("memory")?, row.get("gpu")?],
        server: row.get("server")?,
        shown: Attempt {
            task: task.task,
            attempt: id.attempt,
            state: row.get("state")?,
            pool: row.get::<Name>("pool")?,
            nodes: serde_json::from_str(&placement).map_err(Error::internal)?,
            world_size: row.get("world")?,
            isolation: row.get("isolation")?,
            resumed_from: row.get("resumed")?,
            end: row.get("ending")?,
            exit_code: row.get("exit_code")?,
            started_at,
            ended_at,
            cpu_seconds: row.get("cpu_seconds")?,
            peak_memory_bytes: row.get("peak_memory")?,
            cost: crate::cost::money(row.get("price")?, started_at, ended_at.unwrap_or(now)),
            stacks: row.get("stacks")?,
        },
    })
}

pub(crate) fn note_decision(
    tx: &mut Tx<'_>,
    id: TaskId,
    kind: &str,
    detail: &serde_json::Value,
) -> Result<()> {
    let now = tx.now();
    tx.put(
        "INSERT INTO training_decision (job, id, task, at, kind, detail)
         VALUES ($1, $2, $3, $4, $5, $6)",
        &params![
            id.job,
            uuid::Uuid::now_v7().simple().to_string(),
            id.task,
            now,
            kind,
            detail.to_string()
        ],
    )
}

/// What was decided about a job, the oldest first; of one task if it is named.
pub(crate) fn decisions(
    tx: &mut Tx<'_>,
    job: JobId,
    task: Option<u32>,
    limit: usize,
) -> Result<Vec<Decided>> {
    let sql = "SELECT task, at, kind, detail FROM training_decision
               WHERE job = $1 AND (CAST($2 AS BIGINT) < 0 OR task = $2) ORDER BY id DESC LIMIT $3";
    let task = task.map_or(-1, i64::from);
    let rows = tx.query(sql, &params![job, task, limit])?;
    let mut found = rows
        .iter()
        .map(|row| {
            let detail: String = row.get("detail")?;
            Ok(Decided {
                task: row.get("task")?,
                at: row.get("at")?,
                kind: row.get("kind")?,
                detail: serde_json::from_str(&detail).map_err(Error::internal)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    found.reverse();
    Ok(found)
}

/// Forgets decisions of before a time; tells how many.
pub(crate) fn trim_decisions(tx: &mut Tx<'_>, before: Timestamp, limit: usize) -> Result<u64> {
    tx.execute(
        "DELETE FROM training_decision WHERE (job, id) IN (
             SELECT job, id FROM training_decision WHERE at < $1 ORDER BY at LIMIT $2)",
        &params![before, limit],
    )
}
