//! Erasures in the database.

use std::collections::HashSet;
use std::time::Duration;

use falaj_base::{Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::erasure::{Erasure, ErasureId, ErasureState, Report};
use crate::name::FeatureName;
use crate::training::TrainingSetId;

/// An erasure keeps the keys for as long as a store may have to be told of it. `feature_erased` tells
/// up to which of them each online store has done.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_erasure (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE,
        project TEXT NOT NULL REFERENCES project (id), entity TEXT NOT NULL, keys TEXT,
        state TEXT NOT NULL, report TEXT NOT NULL, at INTEGER NOT NULL, created_by TEXT NOT NULL,
        finished_at INTEGER);
    CREATE INDEX feature_erasure_state ON feature_erasure (state, number);
    CREATE TABLE feature_erased (store TEXT PRIMARY KEY, number INTEGER NOT NULL);";

/// The training sets that an erasure which runs has looked through.
pub(crate) const LOOKED: &str = "
    CREATE TABLE feature_erasure_looked (
        erasure TEXT NOT NULL, training_set TEXT NOT NULL,
        PRIMARY KEY (erasure, training_set)) CLUSTERED;";

/// How long the keys of an erasure that is done are kept. A store that was away for longer is filled
/// anew.
const KEPT: Duration = Duration::from_hours(7 * 24);
/// How long after its end an erasure is done again: whoever read old rows before it has brought them
/// by then.
const AGAIN: Duration = Duration::from_mins(1);

const COLUMNS: &str = "id, project, entity, keys, state, report, at, created_by, finished_at";

pub(super) fn insert(tx: &mut Tx<'_>, new: &Erasure) -> Result<()> {
    tx.lock("feature-erasures")?;
    let keys = serde_json::to_string(&new.keys).map_err(Error::internal)?;
    let report = serde_json::to_string(&new.report).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO feature_erasure (id, number, project, entity, keys, state, report, at, created_by)
         VALUES ($1, (SELECT COALESCE(MAX(number), 0) + 1 FROM feature_erasure), $2, $3, $4,
             'running', $5, $6, $7)",
        &params![
            new.id,
            new.project,
            new.entity.as_str(),
            keys,
            report,
            new.at,
            &new.created_by
        ],
    )
    .map(drop)
}

pub(super) fn find(tx: &mut Tx<'_>, id: ErasureId) -> Result<Option<Erasure>> {
    let sql = format!("SELECT {COLUMNS} FROM feature_erasure WHERE id = $1");
    tx.query_opt(&sql, &params![id])?.as_ref().map(read).transpose()
}

/// Those that are not done.
pub(super) fn running(tx: &mut Tx<'_>) -> Result<Vec<Erasure>> {
    let sql =
        format!("SELECT {COLUMNS} FROM feature_erasure WHERE state = 'running' ORDER BY number");
    tx.query(&sql, &[])?.iter().map(read).collect()
}

/// Puts down that one is done, and what became of it; false if it was already. What is known of the views'
/// values must be forgotten in the same transaction.
pub(super) fn finish(tx: &mut Tx<'_>, id: ErasureId, report: &Report) -> Result<bool> {
    let report = serde_json::to_string(report).map_err(Error::internal)?;
    let now = tx.now();
    let done = tx.execute(
        "UPDATE feature_erasure SET state = 'done', report = $2, finished_at = $3
         WHERE id = $1 AND state = 'running'",
        &params![id, report, now],
    )?;
    tx.execute("DELETE FROM feature_erasure_looked WHERE erasure = $1", &params![id])?;
    Ok(done == 1)
}

/// Whether there are keys to forget.
pub(super) fn has_old_keys(tx: &mut Tx<'_>) -> Result<bool> {
    let before = tx.now() - KEPT;
    let row = tx.query_opt(
        "SELECT id FROM feature_erasure
         WHERE state = 'done' AND keys IS NOT NULL AND finished_at < $1 LIMIT 1",
        &params![before],
    )?;
    Ok(row.is_some())
}

/// Forgets the keys of those that every store was told of, or that it missed.
pub(super) fn forget_keys(tx: &mut Tx<'_>) -> Result<u64> {
    let before = tx.now() - KEPT;
    tx.execute(
        "UPDATE feature_erasure SET keys = NULL
         WHERE state = 'done' AND keys IS NOT NULL AND finished_at < $1",
        &params![before],
    )
}

/// What an online store has to be told.
pub(crate) struct Told {
    /// Whether it has missed one whose keys are forgotten.
    pub(crate) missed: bool,
    /// The last one there is.
    pub(crate) last: i64,
    /// Those to do, some of them again.
    pub(crate) due: Vec<Erasure>,
    /// The last one that the store has done.
    pub(crate) done: i64,
}

/// What a store has to be told by now.
pub(crate) fn told(tx: &mut Tx<'_>, store: &str) -> Result<Told> {
    let numbers = tx.query_one(
        "SELECT COALESCE(MAX(number), 0) AS last,
             COALESCE(MAX(CASE WHEN keys IS NULL THEN number ELSE 0 END), 0) AS forgotten
         FROM feature_erasure",
        &[],
    )?;
    let last: i64 = numbers.get("last")?;
    let none = Told { missed: false, last, due: Vec::new(), done: last };
    if last == 0 {
        return Ok(none);
    }
    let sql = "SELECT number FROM feature_erased WHERE store = $1";
    let done = tx.query_opt(sql, &params![store])?;
    let done: i64 = done.map_or(Ok(0), |row| row.get("number"))?;
    let sql = format!(
        "SELECT {COLUMNS} FROM feature_erasure WHERE keys IS NOT NULL
             AND (number > $1 OR state = 'running' OR finished_at > $2) ORDER BY number"
    );
    let rows = tx.query(&sql, &params![done, tx.now() - AGAIN])?;
    let due = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Told { missed: numbers.get::<i64>("forgotten")? > done, due, done, ..none })
}

/// Puts down that a store has done all up to one.
pub(crate) fn note_done(tx: &mut Tx<'_>, store: &str, number: i64) -> Result<()> {
    tx.execute(
        "INSERT INTO feature_erased (store, number) VALUES ($1, $2)
         ON CONFLICT (store) DO UPDATE SET number = excluded.number",
        &params![store, number],
    )
    .map(drop)
}

/// Which erasures of a project there are, and which of them are done.
///
/// Whoever reads rows and keeps something of them looks before, and again when it is put down, under the
/// lock that [`finish`]'s transaction takes for the same view. If both are the same, then none began nor
/// ended meanwhile; one that still runs drops what was put down when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    last: i64,
    done: i64,
}

pub(crate) fn standing(tx: &mut Tx<'_>, project: ProjectId) -> Result<Standing> {
    let row = tx.query_one(
        "SELECT COALESCE(MAX(number), 0) AS last,
             COUNT(CASE WHEN state = 'done' THEN 1 END) AS done
         FROM feature_erasure WHERE project = $1",
        &params![project],
    )?;
    Ok(Standing { last: row.get("last")?, done: row.get("done")? })
}

/// Puts down training sets that have nothing of the entity, or no longer: they never change, and are not
/// looked through again.
pub(super) fn note_looked(tx: &mut Tx<'_>, id: ErasureId, sets: &[TrainingSetId]) -> Result<()> {
    let rows = sets.iter().map(|set| params![id, *set].to_vec());
    tx.execute_many(
        "INSERT INTO feature_erasure_looked (erasure, training_set) VALUES ($1, $2)
         ON CONFLICT (erasure, training_set) DO NOTHING",
        rows,
    )
    .map(drop)
}

/// The training sets that were looked through.
pub(super) fn looked(tx: &mut Tx<'_>, id: ErasureId) -> Result<HashSet<TrainingSetId>> {
    let sql = "SELECT training_set FROM feature_erasure_looked WHERE erasure = $1";
    tx.query(sql, &params![id])?.iter().map(|row| row.get("training_set")).collect()
}

/// Those of a project since a time, whose keys are known.
pub(super) fn since(tx: &mut Tx<'_>, project: ProjectId, at: Timestamp) -> Result<Vec<Erasure>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM feature_erasure
         WHERE project = $1 AND at >= $2 AND keys IS NOT NULL ORDER BY number"
    );
    tx.query(&sql, &params![project, at])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Erasure> {
    let (entity, state): (String, String) = (row.get("entity")?, row.get("state")?);
    let (keys, report): (Option<String>, String) = (row.get("keys")?, row.get("report")?);
    let keys = keys.map(|keys| serde_json::from_str(&keys)).transpose();
    Ok(Erasure {
        id: row.get("id")?,
        entity: FeatureName::new(entity).map_err(Error::internal)?,
        state: if state == "done" { ErasureState::Done } else { ErasureState::Running },
        report: serde_json::from_str(&report).map_err(Error::internal)?,
        at: row.get("at")?,
        created_by: row.get("created_by")?,
        finished_at: row.get("finished_at")?,
        project: row.get("project")?,
        keys: keys.map_err(Error::internal)?,
    })
}
