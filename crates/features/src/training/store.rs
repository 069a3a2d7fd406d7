//! Training sets in the database.

use falaj_base::{BlobId, Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::id::TrainingSetId;
use super::set::{State, Task, TrainingSet};
use super::spec::{Chosen, Work};
use crate::definition::VersionId;

/// `work` is what was asked for, with every name resolved; `moments` the file of what it is asked
/// about. Which versions of views a set is made of stands in rows of its own, to be found from there.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_set (
        id TEXT PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id), tenant TEXT NOT NULL,
        name TEXT, state TEXT NOT NULL, error TEXT, attempts INTEGER NOT NULL, work TEXT NOT NULL,
        moments TEXT NOT NULL, manifest TEXT, digest TEXT, rows INTEGER, size INTEGER, blob TEXT,
        created_at INTEGER NOT NULL, created_by TEXT NOT NULL, finished_at INTEGER);
    CREATE INDEX training_set_project ON training_set (project, id);
    CREATE INDEX training_set_state ON training_set (state, id);
    CREATE TABLE training_set_view (
        view INTEGER NOT NULL, training_set TEXT NOT NULL,
        PRIMARY KEY (view, training_set)) CLUSTERED;";

/// How a blob knows that a training set refers to it.
pub(super) const CLAIM: &str = "training-set";
pub(super) const MOMENTS: &str = "training-moments";

/// How many dependent sets are shown.
const SHOWN: usize = 100;

const COLUMNS: &str = "id, name, state, error, work, manifest, digest, rows, size, blob, \
     created_at, created_by, finished_at";

pub(super) fn insert(tx: &mut Tx<'_>, task: &Task, name: Option<&String>, by: &str) -> Result<()> {
    let work = serde_json::to_string(&task.work).map_err(Error::internal)?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_set
             (id, project, tenant, name, state, attempts, work, moments, created_at, created_by)
         VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, $9)",
        &params![
            task.id,
            task.project,
            task.tenant,
            name,
            State::Waiting.as_str(),
            work,
            task.moments,
            now,
            by
        ],
    )?;
    let views = task.work.views.iter().map(|view| params![*view, task.id].to_vec());
    tx.execute_many(
        "INSERT INTO training_set_view (view, training_set) VALUES ($1, $2)
         ON CONFLICT (view, training_set) DO NOTHING",
        views,
    )
    .map(drop)
}

pub(super) fn waiting_of(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM training_set WHERE state = 'waiting' AND project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

/// The next that waits, after one.
pub(super) fn next(tx: &mut Tx<'_>, after: Option<TrainingSetId>) -> Result<Option<Task>> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let row = tx.query_opt(
        "SELECT id, project, tenant, work, moments, attempts FROM training_set
         WHERE state = 'waiting' AND id > $1 ORDER BY id LIMIT 1",
        &params![after],
    )?;
    let read = |row: Row| {
        let work: String = row.get("work")?;
        Ok(Task {
            id: row.get("id")?,
            project: row.get("project")?,
            tenant: row.get("tenant")?,
            work: serde_json::from_str(&work).map_err(Error::internal)?,
            moments: row.get("moments")?,
            attempts: row.get("attempts")?,
        })
    };
    row.map(read).transpose()
}

/// Counts a beginning.
pub(super) fn begin(tx: &mut Tx<'_>, id: TrainingSetId) -> Result<()> {
    let sql = "UPDATE training_set SET attempts = attempts + 1 WHERE id = $1";
    tx.execute(sql, &params![id]).map(drop)
}

/// What a set came to be.
pub(super) struct Made<'a> {
    pub(super) manifest: &'a str,
    pub(super) digest: &'a str,
    pub(super) rows: u64,
    pub(super) size: u64,
    pub(super) blob: BlobId,
}

/// Puts a result down; false if it is no longer waited for.
pub(super) fn finish(tx: &mut Tx<'_>, id: TrainingSetId, made: &Made<'_>) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE training_set SET state = 'ready', manifest = $2, digest = $3, rows = $4, size = $5,
             blob = $6, finished_at = $7 WHERE id = $1 AND state = 'waiting'",
        &params![id, made.manifest, made.digest, made.rows, made.size, made.blob, now],
    )?;
    Ok(changed == 1)
}

pub(super) fn fail(tx: &mut Tx<'_>, id: TrainingSetId, why: &str) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE training_set SET state = 'failed', error = $2, finished_at = $3
         WHERE id = $1 AND state = 'waiting'",
        &params![id, why, now],
    )?;
    Ok(changed == 1)
}

pub(super) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    id: TrainingSetId,
) -> Result<Option<TrainingSet>> {
    let sql = format!("SELECT {COLUMNS} FROM training_set WHERE project = $1 AND id = $2");
    tx.query_opt(&sql, &params![project, id])?.as_ref().map(read).transpose()
}

/// Those of a project, the newest first, before one.
pub(super) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    before: &str,
    limit: usize,
) -> Result<Vec<TrainingSet>> {
    let before = if before.is_empty() { "~" } else { before };
    let sql = format!(
        "SELECT {COLUMNS} FROM training_set WHERE project = $1 AND id < $2
         ORDER BY id DESC LIMIT $3"
    );
    tx.query(&sql, &params![project, before, limit])?.iter().map(read).collect()
}

/// Those that are made of a version of a view, the newest first.
pub(crate) fn made_of(tx: &mut Tx<'_>, view: VersionId) -> Result<Vec<TrainingSetId>> {
    let rows = tx.query(
        "SELECT training_set FROM training_set_view WHERE view = $1
         ORDER BY training_set DESC LIMIT $2",
        &params![view, SHOWN],
    )?;
    rows.iter().map(|row| row.get("training_set")).collect()
}

fn read(row: &Row) -> Result<TrainingSet> {
    let (work, state): (String, String) = (row.get("work")?, row.get("state")?);
    let work: Work = serde_json::from_str(&work).map_err(Error::internal)?;
    let manifest: Option<String> = row.get("manifest")?;
    let manifest = manifest.map(|text| serde_json::from_str(&text)).transpose();
    let features: Vec<Chosen> = work.chosen;
    Ok(TrainingSet {
        id: row.get("id")?,
        name: row.get("name")?,
        state: match state.as_str() {
            "ready" => State::Ready,
            "failed" => State::Failed,
            _ => State::Waiting,
        },
        error: row.get("error")?,
        features,
        rows: row.get("rows")?,
        size: row.get("size")?,
        digest: row.get("digest")?,
        manifest: manifest.map_err(Error::internal)?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        finished_at: row.get::<Option<Timestamp>>("finished_at")?,
        blob: row.get("blob")?,
    })
}
