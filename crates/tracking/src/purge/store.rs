//! What is being purged, as rows; and finding what could be.

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, params};
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

/// The next task, of one experiment or of any. Runs and models come before experiments, which wait
/// for theirs.
pub(super) fn next_task(tx: &mut Tx<'_>, experiment: Option<i64>) -> Result<Option<Task>> {
    let columns = "id, kind, project, subject, experiment, experiment_id, folder";
    let row = match experiment {
        Some(no) => tx.query_opt(
            &format!("SELECT {columns} FROM purge WHERE experiment = $1 ORDER BY kind, id LIMIT 1"),
            &params![no],
        )?,
        None => {
            tx.query_opt(&format!("SELECT {columns} FROM purge ORDER BY kind, id LIMIT 1"), &[])?
        }
    };
    row.as_ref().map(read).transpose()
}

/// Whether anything else of the task's experiment is still to be cleared away.
pub(super) fn others_pending(tx: &mut Tx<'_>, task: &Task) -> Result<bool> {
    let sql = "SELECT id FROM purge WHERE experiment = $1 AND id <> $2 LIMIT 1";
    Ok(tx.query_opt(sql, &params![task.experiment, &task.id.as_bytes()[..]])?.is_some())
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

/// What went to the bin of a project before `before`, in milliseconds: whole experiments first,
/// then single runs and models of the others.
pub(super) fn due(tx: &mut Tx<'_>, project: ProjectId, before: i64) -> Result<Vec<Due>> {
    let mut all = Vec::new();
    let rows = tx.query(
        "SELECT id FROM experiment WHERE project = $1 AND id >= 0 AND stage = 'deleted'
         AND updated_at < $2 ORDER BY id",
        &params![project, before],
    )?;
    for row in &rows {
        all.push(Due::Experiment(row.get("id")?));
    }
    let whole: std::collections::HashSet<ExperimentId> =
        rows.iter().map(|row| row.get("id")).collect::<Result<_>>()?;
    for (table, sql) in [
        (
            RUN,
            "SELECT e.id AS experiment_id, r.id FROM experiment e JOIN run r ON r.experiment = e.no
             WHERE e.project = $1 AND e.id >= 0 AND r.deleted_at IS NOT NULL AND r.deleted_at < $2
             ORDER BY e.id, r.id",
        ),
        (
            MODEL,
            "SELECT e.id AS experiment_id, m.id FROM experiment e
             JOIN logged_model m ON m.experiment = e.no
             WHERE e.project = $1 AND e.id >= 0 AND m.stage = 'deleted' AND m.updated_at < $2
             ORDER BY e.id, m.id",
        ),
    ] {
        tx.scan(sql, &params![project, before], |row| {
            let experiment: ExperimentId = row.get("experiment_id")?;
            if !whole.contains(&experiment) {
                all.push(match table {
                    RUN => Due::Run(experiment, row.get("id")?),
                    _ => Due::Model(experiment, row.get("id")?),
                });
            }
            Ok(())
        })?;
    }
    Ok(all)
}

fn read(row: &Row) -> Result<Task> {
    let subject = match row.get::<i64>("kind")? {
        RUN => Subject::Run(row.get("subject")?),
        MODEL => Subject::Model(row.get("subject")?),
        EXPERIMENT => Subject::Experiment,
        other => {
            return Err(falaj_base::Error::internal(format!("a purge of an unknown kind {other}")));
        }
    };
    Ok(Task {
        id: Uuid::from_slice(&row.get::<Vec<u8>>("id")?).map_err(falaj_base::Error::internal)?,
        project: row.get("project")?,
        subject,
        experiment: row.get("experiment")?,
        experiment_id: row.get("experiment_id")?,
        folder: row.get("folder")?,
    })
}
