//! Clearing away what is on record as purged, in small transactions.
//!
//! Stop it anywhere and run it again, on any server and on several at once: every step deletes
//! what is still there, and the task goes last.

use std::time::Instant;

use falaj_base::Result;
use falaj_store::db::{Tx, params};
use uuid::Uuid;

use super::service::Gone;
use super::store::{self, Subject, Task, Which};
use crate::Tracking;
use crate::artifact::{ArtifactPath, Purged, proxied_path};
use crate::metric;
use crate::run::{RunId, store as runs};

/// The most files, rows of names, or runs in one transaction.
const AT_ONCE: usize = 250;
/// Names are small.
const NAMES_AT_ONCE: usize = 5000;

/// What one transaction did.
#[derive(Debug, Default)]
struct Step {
    purged: Purged,
    /// Whether the task is finished.
    done: bool,
}

impl Step {
    fn more() -> Self {
        Self::default()
    }
}

impl Tracking {
    /// Clears away what is purged, until there is nothing left or the time is over.
    pub(super) async fn clear_away(&self, which: Which, until: Option<Instant>) -> Result<Gone> {
        let mut gone = Gone::default();
        loop {
            let next = self.db().read(move |tx| store::next_task(tx, which)).await?;
            let Some(task) = next else { return Ok(gone) };
            loop {
                if until.is_some_and(|until| Instant::now() >= until) {
                    gone.pending = true;
                    return Ok(gone);
                }
                let turn = task.clone();
                let step = self.db().write(move |tx| step(tx, &turn)).await?;
                gone.files += step.purged.files;
                gone.bytes += step.purged.bytes;
                // The runs of an experiment have become tasks of their own and come first.
                if step.done || task.subject == Subject::Experiment {
                    break;
                }
            }
        }
    }
}

fn step(tx: &mut Tx<'_>, task: &Task) -> Result<Step> {
    match task.subject {
        Subject::Run(run) => run_step(tx, task, run),
        Subject::Model(model) => {
            if let Some(step) = files(tx, task)? {
                return Ok(step);
            }
            for table in
                ["logged_model_param", "logged_model_tag", "logged_model_metric", "run_model"]
            {
                let sql = format!("DELETE FROM {table} WHERE model = $1");
                tx.execute(&sql, &params![model])?;
            }
            finish(tx, task)
        }
        Subject::Experiment => experiment_step(tx, task),
    }
}

fn run_step(tx: &mut Tx<'_>, task: &Task, run: RunId) -> Result<Step> {
    if !metric::store::delete(tx, run)? {
        return Ok(Step::more());
    }
    if !crate::console::store::delete(tx, run)? {
        return Ok(Step::more());
    }
    if let Some(step) = files(tx, task)? {
        return Ok(step);
    }
    // The points were compacted once more, perhaps, and left a mark.
    for table in ["param", "run_tag", "dataset_input", "run_model", "run_touch"] {
        tx.execute(&format!("DELETE FROM {table} WHERE run = $1"), &params![run])?;
    }
    finish(tx, task)
}

/// Deletes some of the task's files; none if there are no more.
fn files(tx: &mut Tx<'_>, task: &Task) -> Result<Option<Step>> {
    let Some(folder) = &task.folder else { return Ok(None) };
    // What is no path of ours has no files here either.
    let Ok(folder) = ArtifactPath::new(folder.as_str()) else { return Ok(None) };
    let (purged, more) = Purged::folder(tx, task.project, &folder, AT_ONCE)?;
    Ok(more.then_some(Step { purged, done: false }))
}

fn experiment_step(tx: &mut Tx<'_>, task: &Task) -> Result<Step> {
    let no = task.experiment;
    let found = tx.query(
        "SELECT id, artifact_uri FROM run WHERE experiment = $1 LIMIT $2",
        &params![no, AT_ONCE],
    )?;
    if !found.is_empty() {
        for row in found {
            let run: RunId = row.get("id")?;
            let uri: String = row.get("artifact_uri")?;
            runs::delete(tx, run)?;
            let folder = proxied_path(&uri).map(str::to_owned);
            let subject = Subject::Run(run);
            store::add(tx, &Task { id: Uuid::now_v7(), subject, folder, ..task.clone() })?;
        }
        return Ok(Step::more());
    }
    let (purged, more) = Purged::experiment(tx, task.project, task.experiment_id, AT_ONCE)?;
    if more {
        return Ok(Step { purged, done: false });
    }
    let models = tx.query(
        "SELECT id FROM logged_model WHERE experiment = $1 LIMIT $2",
        &params![no, AT_ONCE],
    )?;
    if !models.is_empty() {
        for row in models {
            let model: crate::logged_model::ModelId = row.get("id")?;
            for (table, key) in [
                ("logged_model_param", "model"),
                ("logged_model_tag", "model"),
                ("logged_model_metric", "model"),
                ("run_model", "model"),
                ("logged_model", "id"),
            ] {
                tx.execute(&format!("DELETE FROM {table} WHERE {key} = $1"), &params![model])?;
            }
        }
        return Ok(Step::more());
    }
    let names = tx.execute(
        "DELETE FROM tracking_key WHERE no IN
             (SELECT no FROM tracking_key WHERE experiment = $1 LIMIT $2)",
        &params![no, NAMES_AT_ONCE],
    )?;
    if names >= NAMES_AT_ONCE as u64 {
        return Ok(Step::more());
    }
    // Someone else clears it away too, and has its runs under way.
    if store::others_pending(tx, task)? {
        return Ok(Step::more());
    }
    for (table, key) in
        [("dataset", "experiment"), ("experiment_tag", "experiment"), ("experiment", "no")]
    {
        tx.execute(&format!("DELETE FROM {table} WHERE {key} = $1"), &params![no])?;
    }
    finish(tx, task)
}

fn finish(tx: &mut Tx<'_>, task: &Task) -> Result<Step> {
    store::finish(tx, task)?;
    Ok(Step { purged: Purged::default(), done: true })
}
