//! Training sets in the database.

use falaj_base::{BlobId, Error, ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::id::TrainingSetId;
use super::set::{State, Task, TrainingSet};
use super::spec::{Chosen, Work};
use crate::definition::VersionId;
use crate::name::FeatureName;

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

/// What became of sets that had rows of an entity which was erased: by which erasure they went, and
/// the set that has their other rows. They have no file, and `moments` is empty.
pub(crate) const ERASED: &str = "
    ALTER TABLE training_set ADD COLUMN erased_at INTEGER;
    ALTER TABLE training_set ADD COLUMN erased_by TEXT;
    ALTER TABLE training_set ADD COLUMN successor TEXT;
    CREATE INDEX training_set_erased ON training_set (erased_by);";

/// How a blob knows that a training set refers to it.
pub(crate) const CLAIM: &str = "training-set";
pub(crate) const MOMENTS: &str = "training-moments";

/// How many dependent sets are shown.
const SHOWN: usize = 100;

const COLUMNS: &str = "id, name, state, error, work, manifest, digest, rows, size, blob, \
     created_at, created_by, finished_at, erased_at, successor";

/// Puts a set down that waits. `inputs` are versions of views that features of it are computed from, on
/// demand: it is made of those as well.
pub(super) fn insert(
    tx: &mut Tx<'_>,
    task: &Task,
    inputs: &[VersionId],
    (name, by): (Option<&String>, &str),
) -> Result<()> {
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
    let views = task.work.views.iter().chain(inputs);
    let views = views.map(|view| params![*view, task.id].to_vec());
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

/// The most that are looked at when the next is chosen.
const LOOKED_AT: usize = 10_000;

/// Those that wait, the oldest first.
pub(super) fn waiting(tx: &mut Tx<'_>) -> Result<Vec<(TenantId, TrainingSetId)>> {
    let rows = tx.query(
        "SELECT tenant, id FROM training_set WHERE state = 'waiting' ORDER BY id LIMIT $1",
        &params![LOOKED_AT],
    )?;
    rows.iter().map(|row| Ok((row.get("tenant")?, row.get("id")?))).collect()
}

/// One that waits, with all that is needed to make it.
pub(super) fn task(tx: &mut Tx<'_>, id: TrainingSetId) -> Result<Option<Task>> {
    let row = tx.query_opt(
        "SELECT id, project, tenant, work, moments, attempts FROM training_set
         WHERE state = 'waiting' AND id = $1",
        &params![id],
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
pub(crate) struct Made<'a> {
    pub(crate) manifest: &'a str,
    pub(crate) digest: &'a str,
    pub(crate) rows: u64,
    pub(crate) size: u64,
    pub(crate) blob: BlobId,
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

pub(crate) fn find(
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

/// A set, and the files that may have rows of an entity.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) id: TrainingSetId,
    pub(crate) tenant: TenantId,
    pub(crate) state: State,
    pub(crate) blob: Option<BlobId>,
    pub(crate) moments: Option<BlobId>,
}

/// Those that are made of any of these versions of views and have files.
pub(crate) fn files_of(tx: &mut Tx<'_>, views: &[VersionId]) -> Result<Vec<Files>> {
    let mut found = Vec::new();
    for view in views {
        let rows = tx.query(
            "SELECT s.id, s.tenant, s.state, s.blob, NULLIF(s.moments, '') AS moments
             FROM training_set_view AS v JOIN training_set AS s ON s.id = v.training_set
             WHERE v.view = $1 AND s.state <> 'erased'",
            &params![*view],
        )?;
        for row in &rows {
            found.push(read_files(row)?);
        }
    }
    Ok(found)
}

/// The same of one set; none if it has none.
pub(crate) fn files(tx: &mut Tx<'_>, id: TrainingSetId) -> Result<Option<Files>> {
    let row = tx.query_opt(
        "SELECT id, tenant, state, blob, NULLIF(moments, '') AS moments
         FROM training_set WHERE id = $1 AND state <> 'erased'",
        &params![id],
    )?;
    row.as_ref().map(read_files).transpose()
}

fn read_files(row: &Row) -> Result<Files> {
    let state: String = row.get("state")?;
    Ok(Files {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        state: state_of(&state),
        blob: row.get("blob")?,
        moments: row.get("moments")?,
    })
}

/// Puts down that a set has no file any more, and which has its other rows; false if its file is
/// another by now.
pub(crate) fn erase(
    tx: &mut Tx<'_>,
    (id, blob): (TrainingSetId, BlobId),
    by: &str,
    successor: TrainingSetId,
) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE training_set SET state = 'erased', blob = NULL, moments = '', erased_at = $3,
             erased_by = $4, successor = $5
         WHERE id = $1 AND state = 'ready' AND blob = $2",
        &params![id, blob, now, by, successor],
    )?;
    Ok(changed == 1)
}

/// Forgets the moments of a set that is not made, or could not be, and why it could not, which may quote
/// them; false if it has become another meanwhile.
pub(crate) fn forget_moments(
    tx: &mut Tx<'_>,
    (id, moments): (TrainingSetId, BlobId),
    why: &str,
    by: &str,
) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE training_set SET moments = '', error = $3, state = 'failed',
             finished_at = COALESCE(finished_at, $4), erased_by = $5
         WHERE id = $1 AND moments = $2 AND state IN ('waiting', 'failed')",
        &params![id, moments, why, now, by],
    )?;
    Ok(changed == 1)
}

/// Puts down a set that is another without some of its rows.
pub(crate) fn succeed(
    tx: &mut Tx<'_>,
    (old, new): (TrainingSetId, TrainingSetId),
    made: &Made<'_>,
) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO training_set (id, project, tenant, name, state, attempts, work, moments,
             manifest, digest, rows, size, blob, created_at, created_by, finished_at)
         SELECT $2, project, tenant, name, 'ready', 0, work, '', $3, $4, $5, $6, $7, $8,
             created_by, $8
         FROM training_set WHERE id = $1",
        &params![old, new, made.manifest, made.digest, made.rows, made.size, made.blob, now],
    )?;
    tx.execute(
        "INSERT INTO training_set_view (view, training_set)
         SELECT view, $2 FROM training_set_view WHERE training_set = $1",
        &params![old, new],
    )
    .map(drop)
}

/// The sets that an erasure took away, and those that have their other rows.
pub(crate) fn erased_by(tx: &mut Tx<'_>, by: &str) -> Result<Vec<(String, Option<String>)>> {
    let rows = tx.query(
        "SELECT id, successor FROM training_set WHERE erased_by = $1 ORDER BY id DESC",
        &params![by],
    )?;
    rows.iter().map(|row| Ok((row.get("id")?, row.get("successor")?))).collect()
}

/// Those that are made of any version of a view, the newest first: which version, and their digests.
pub(crate) fn of_view(
    tx: &mut Tx<'_>,
    project: ProjectId,
    view: &FeatureName,
    limit: usize,
) -> Result<Vec<(TrainingSetId, i64, Option<String>)>> {
    let rows = tx.query(
        "SELECT t.id, v.version, t.digest FROM feature_version AS v
             JOIN training_set_view AS m ON m.view = v.id
             JOIN training_set AS t ON t.id = m.training_set
         WHERE v.project = $1 AND v.noun = 'view' AND v.name = $2
         ORDER BY t.id DESC LIMIT $3",
        &params![project, view.as_str(), limit],
    )?;
    let one = |row: &Row| Ok((row.get("id")?, row.get("version")?, row.get("digest")?));
    rows.iter().map(one).collect()
}

fn state_of(text: &str) -> State {
    match text {
        "ready" => State::Ready,
        "failed" => State::Failed,
        "erased" => State::Erased,
        _ => State::Waiting,
    }
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
        state: state_of(&state),
        error: row.get("error")?,
        features,
        rows: row.get("rows")?,
        size: row.get("size")?,
        digest: row.get("digest")?,
        manifest: manifest.map_err(Error::internal)?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        finished_at: row.get::<Option<Timestamp>>("finished_at")?,
        erased_at: row.get("erased_at")?,
        successor: row.get("successor")?,
        blob: row.get("blob")?,
    })
}
