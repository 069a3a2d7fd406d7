//! Issues in the database.

use std::collections::{HashMap, HashSet};

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};
use falaj_tracking::ExperimentId;
use serde::Deserialize;

use super::issue::Issue;
use crate::trace::store::{LISTED, list};

/// A purged experiment gives its id back at once; what was in it is cleared away later.
const TABLES: &str = "issue i JOIN experiment e ON e.no = i.experiment AND e.id >= 0";

/// An issue, and where it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) experiment_id: ExperimentId,
    pub(crate) issue: Issue,
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiment: i64,
    issue: &Issue,
) -> Result<()> {
    tx.execute(
        "INSERT INTO issue (id, project, experiment, body) VALUES ($1, $2, $3, $4)",
        &params![&issue.id, project, experiment, json(issue)?],
    )
    .map(drop)
}

pub(super) fn update(tx: &mut Tx<'_>, issue: &Issue) -> Result<u64> {
    let sql = "UPDATE issue SET body = $2 WHERE id = $1";
    tx.execute(sql, &params![&issue.id, json(issue)?])
}

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId, id: &str) -> Result<Option<Placed>> {
    let sql = format!(
        "SELECT e.id AS experiment_id, i.body FROM {TABLES}
         WHERE i.id = $1 AND i.project = $2"
    );
    tx.query_opt(&sql, &params![id, project])?.as_ref().map(read).transpose()
}

pub(super) fn count(tx: &mut Tx<'_>, experiment: i64) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM issue WHERE experiment = $1";
    tx.query_one(sql, &params![experiment])?.get("n")
}

/// Hands over every issue of some experiments, one by one, with what it measures.
pub(super) fn each(
    tx: &mut Tx<'_>,
    experiments: &[i64],
    mut each: impl FnMut(Placed, usize) -> Result<()>,
) -> Result<()> {
    for experiments in experiments.chunks(LISTED) {
        let sql = format!(
            "SELECT e.id AS experiment_id, i.body FROM {TABLES}
             WHERE i.experiment IN ({})",
            list(1, experiments.len())
        );
        let values: Vec<Value> = experiments.iter().map(|no| Value::from(*no)).collect();
        tx.scan(&sql, &values, |row| {
            let weight = row.get::<String>("body")?.len();
            each(read(&row)?, weight)
        })?;
    }
    Ok(())
}

/// What an assessment says of an issue, if it is about one.
#[derive(Deserialize)]
struct Case {
    name: String,
    said: About,
}

#[derive(Deserialize)]
struct About {
    issue: Option<serde::de::IgnoredAny>,
}

/// How many traces of some experiments are cases of each issue; `None` if more than `room` would
/// have to be read to know.
pub(super) fn trace_counts(
    tx: &mut Tx<'_>,
    experiments: &[i64],
    room: usize,
    full: impl Fn() -> Error,
) -> Result<HashMap<String, usize>> {
    let (mut cases, mut read): (HashMap<String, usize>, usize) = (HashMap::new(), 0);
    for experiments in experiments.chunks(LISTED) {
        let sql = format!(
            "SELECT a.trace, a.body FROM trace_assessment a JOIN trace t ON t.no = a.trace
             WHERE t.experiment IN ({}) ORDER BY a.trace",
            list(1, experiments.len())
        );
        let values: Vec<Value> = experiments.iter().map(|no| Value::from(*no)).collect();
        let (mut trace, mut here): (Vec<u8>, HashSet<String>) = (Vec::new(), HashSet::new());
        tx.scan(&sql, &values, |row| {
            let body: String = row.get("body")?;
            read = read.saturating_add(body.len());
            if read > room {
                return Err(full());
            }
            let of: Vec<u8> = row.get("trace")?;
            if of != trace {
                (trace, here) = (of, HashSet::new());
            }
            let case: Case = serde_json::from_str(&body).map_err(Error::internal)?;
            if case.said.issue.is_some() && here.insert(case.name.clone()) {
                *cases.entry(case.name).or_default() += 1;
            }
            Ok(())
        })?;
    }
    Ok(cases)
}

/// Deletes the issues of experiments that are gone; how many there were.
pub(crate) fn clear_orphans(tx: &mut Tx<'_>) -> Result<u64> {
    tx.execute(
        "DELETE FROM issue WHERE NOT EXISTS
             (SELECT 1 FROM experiment e WHERE e.no = issue.experiment AND e.id >= 0)",
        &[],
    )
}

fn json(issue: &Issue) -> Result<String> {
    serde_json::to_string(issue).map_err(Error::internal)
}

fn read(row: &Row) -> Result<Placed> {
    Ok(Placed {
        experiment_id: row.get("experiment_id")?,
        issue: serde_json::from_str(&row.get::<String>("body")?).map_err(Error::internal)?,
    })
}
