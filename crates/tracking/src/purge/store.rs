//! What is being purged, as rows; and finding what could be.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_store::db::{Row, Tx, Value, params};
use uuid::Uuid;

use crate::experiment::ExperimentId;
use crate::logged_model::ModelId;
use crate::run::RunId;

/// `purge` holds what is on record as purged and not cleared away yet. `experiment_high` is the
/// greatest id of an experiment that was purged, so that it is not given again.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE purge (
        id BLOB PRIMARY KEY, kind INTEGER NOT NULL, project TEXT NOT NULL, subject BLOB NOT NULL,
        experiment INTEGER NOT NULL, experiment_id INTEGER NOT NULL, folder TEXT,
        at INTEGER NOT NULL) CLUSTERED;
    CREATE TABLE experiment_high (project TEXT PRIMARY KEY, id INTEGER NOT NULL);
    CREATE TABLE retention (
        project TEXT PRIMARY KEY REFERENCES project (id), days INTEGER NOT NULL,
        set_by TEXT NOT NULL, set_at INTEGER NOT NULL);
    CREATE TABLE legal_hold (
        project TEXT NOT NULL REFERENCES project (id), name TEXT NOT NULL, experiment INTEGER,
        reason TEXT NOT NULL, set_by TEXT NOT NULL, set_by_name TEXT NOT NULL,
        set_at INTEGER NOT NULL, PRIMARY KEY (project, name)) CLUSTERED;
    CREATE INDEX run_deleted ON run (experiment, deleted_at) WHERE deleted_at IS NOT NULL;";

/// What is purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Run(RunId),
    Model(ModelId),
    /// With everything in it.
    Experiment,
}

/// One thing on record as purged and not cleared away yet.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: Uuid,
    pub(super) project: ProjectId,
    pub(super) subject: Subject,
    /// The experiment's number in the database, and the id it had.
    pub(super) experiment: i64,
    pub(super) experiment_id: ExperimentId,
    /// Where its files lie, if they lie here.
    pub(super) folder: Option<String>,
}

const RUN: i64 = 1;
const MODEL: i64 = 2;
const EXPERIMENT: i64 = 3;

pub(super) fn add(tx: &mut Tx<'_>, task: &Task) -> Result<()> {
    let (kind, subject) = match task.subject {
        Subject::Run(run) => (RUN, run.0.as_bytes().to_vec()),
        Subject::Model(model) => (MODEL, model.0.as_bytes().to_vec()),
        Subject::Experiment => (EXPERIMENT, Vec::new()),
    };
    let now = tx.now();
    tx.execute(
        "INSERT INTO purge (id, kind, project, subject, experiment, experiment_id, folder, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        &params![
            &task.id.as_bytes()[..],
            kind,
            task.project,
            subject,
            task.experiment,
            task.experiment_id,
            task.folder.clone(),
            now,
        ],
    )
    .map(drop)
}

/// Which tasks are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    /// Those of an experiment, by its number in the database.
    Experiment(i64),
    Project(ProjectId),
    Any,
}

/// The next task. Runs and models come before experiments, which wait for theirs.
pub(super) fn next_task(tx: &mut Tx<'_>, which: Which) -> Result<Option<Task>> {
    let (only, values) = match which {
        Which::Experiment(no) => ("WHERE experiment = $1", vec![Value::from(no)]),
        Which::Project(project) => ("WHERE project = $1", vec![Value::from(project)]),
        Which::Any => ("", Vec::new()),
    };
    let sql = format!(
        "SELECT id, kind, project, subject, experiment, experiment_id, folder FROM purge {only}
         ORDER BY kind, id LIMIT 1"
    );
    tx.query_opt(&sql, &values)?.as_ref().map(read).transpose()
}

/// Whether anything else of the task's experiment is still to be cleared away.
pub(super) fn others_pending(tx: &mut Tx<'_>, task: &Task) -> Result<bool> {
    let sql = "SELECT id FROM purge WHERE experiment = $1 AND id <> $2 LIMIT 1";
    Ok(tx.query_opt(sql, &params![task.experiment, &task.id.as_bytes()[..]])?.is_some())
}

/// Refuses an id under which something is still being cleared away: what is made anew under it would
/// be cleared away too.
pub(crate) fn refuse_while_purged(tx: &mut Tx<'_>, subject: &[u8], shown: &str) -> Result<()> {
    if tx.query_opt("SELECT id FROM purge WHERE subject = $1 LIMIT 1", &params![subject])?.is_none()
    {
        return Ok(());
    }
    let text = format!("{shown} is still being purged; try again in a minute");
    Err(Error::new(&code::CONFLICT, text))
}

pub(super) fn finish(tx: &mut Tx<'_>, task: &Task) -> Result<()> {
    tx.execute("DELETE FROM purge WHERE id = $1", &params![&task.id.as_bytes()[..]]).map(drop)
}

/// Takes an experiment out of sight: its name is free, and no client can name its new id.
pub(super) fn hide_experiment(
    tx: &mut Tx<'_>,
    project: ProjectId,
    no: i64,
    id: ExperimentId,
) -> Result<()> {
    // Longer than any name that is accepted, so it is in nobody's way.
    let name = format!("{no:0>501}");
    tx.execute(
        "UPDATE experiment SET id = $2, name = $3, stage = 'deleted' WHERE no = $1",
        &params![no, -no - 1, name],
    )?;
    tx.execute(
        "INSERT INTO experiment_high (project, id) VALUES ($1, $2)
         ON CONFLICT (project) DO UPDATE SET id =
             CASE WHEN experiment_high.id > excluded.id THEN experiment_high.id ELSE excluded.id END",
        &params![project, id],
    )
    .map(drop)
}

/// Notes that runs were deleted for good: copies kept in memory must be loaded anew.
pub(super) fn reset(tx: &mut Tx<'_>, experiment: i64) -> Result<()> {
    let version = tx.version()?;
    tx.execute("UPDATE experiment SET reset = $2 WHERE no = $1", &params![experiment, version])
        .map(drop)
}

/// Something in the bin that is old enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Experiment(ExperimentId),
    Run(ExperimentId, RunId),
    Model(ExperimentId, ModelId),
}

/// How far a look through the bin has come: whole experiments first, then single runs and models
/// of the others.
#[derive(Clone, Debug)]
pub(super) struct Place {
    kind: usize,
    experiment: i64,
    id: Vec<u8>,
}

impl Place {
    pub(super) const START: Self = Self { kind: 0, experiment: -1, id: Vec::new() };
}

/// The runs and models of experiments that are due as a whole are not told beside them. Experiment 0
/// never is: every project has it.
const DUE: [&str; 3] = [
    "SELECT id AS experiment_id FROM experiment
     WHERE project = $1 AND id > 0 AND stage = 'deleted' AND updated_at < $2 AND id > $3
     ORDER BY id LIMIT $4",
    "SELECT e.id AS experiment_id, r.id FROM experiment e JOIN run r ON r.experiment = e.no
     WHERE e.project = $1 AND e.id >= 0 AND NOT (e.id > 0 AND e.stage = 'deleted' AND e.updated_at < $2)
     AND r.deleted_at IS NOT NULL AND r.deleted_at < $2
     AND (e.id > $3 OR (e.id = $3 AND r.id > $5)) ORDER BY e.id, r.id LIMIT $4",
    "SELECT e.id AS experiment_id, m.id FROM experiment e JOIN logged_model m ON m.experiment = e.no
     WHERE e.project = $1 AND e.id >= 0 AND NOT (e.id > 0 AND e.stage = 'deleted' AND e.updated_at < $2)
     AND m.stage = 'deleted' AND m.updated_at < $2
     AND (e.id > $3 OR (e.id = $3 AND m.id > $5)) ORDER BY e.id, m.id LIMIT $4",
];

/// Some of what went to the bin of a project before `before`, in milliseconds, and where to go on;
/// nowhere after the last.
pub(super) fn due(
    tx: &mut Tx<'_>,
    project: ProjectId,
    before: i64,
    from: &Place,
    limit: usize,
) -> Result<(Vec<Due>, Option<Place>)> {
    let Some(sql) = DUE.get(from.kind) else { return Ok((Vec::new(), None)) };
    let mut values = params![project, before, from.experiment, limit].to_vec();
    if from.kind > 0 {
        values.push(Value::Blob(from.id.clone()));
    }
    let mut found = Vec::new();
    let mut last = None;
    for row in tx.query(sql, &values)? {
        let experiment: ExperimentId = row.get("experiment_id")?;
        let id = if from.kind == 0 { Vec::new() } else { row.get::<Vec<u8>>("id")? };
        found.push(match from.kind {
            0 => Due::Experiment(experiment),
            1 => Due::Run(experiment, row.get("id")?),
            _ => Due::Model(experiment, row.get("id")?),
        });
        last = Some(Place { kind: from.kind, experiment: experiment.0, id });
    }
    let next = match last.filter(|_| found.len() == limit) {
        Some(last) => Some(last),
        None => Some(Place { kind: from.kind + 1, ..Place::START }),
    };
    Ok((found, next.filter(|next| next.kind < DUE.len())))
}

fn read(row: &Row) -> Result<Task> {
    let subject = match row.get::<i64>("kind")? {
        RUN => Subject::Run(row.get("subject")?),
        MODEL => Subject::Model(row.get("subject")?),
        EXPERIMENT => Subject::Experiment,
        other => {
            return Err(Error::internal(format!("a purge of an unknown kind {other}")));
        }
    };
    Ok(Task {
        id: Uuid::from_slice(&row.get::<Vec<u8>>("id")?).map_err(Error::internal)?,
        project: row.get("project")?,
        subject,
        experiment: row.get("experiment")?,
        experiment_id: row.get("experiment_id")?,
        folder: row.get("folder")?,
    })
}
