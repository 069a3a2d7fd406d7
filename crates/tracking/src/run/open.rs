//! Runs that have not ended and carry a tag: for those who make runs for something of their own, and
//! look whether that is still there.

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Tx, params};

use super::id::RunId;
use super::run::RunStatus;
use crate::key::KeyKind;

/// A run that has not ended, and the value of the tag that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRun {
    pub project: ProjectId,
    pub run: RunId,
    pub value: String,
}

/// Runs with a tag that began before a time (in milliseconds) and have not ended, in the order of their
/// ids, after one.
pub fn open_with_tag(
    tx: &mut Tx<'_>,
    tag: &str,
    before: i64,
    after: RunId,
    limit: usize,
) -> Result<Vec<OpenRun>> {
    let sql = "SELECT e.project AS project, r.id AS run, t.value AS value
               FROM tracking_key AS k JOIN run_tag AS t ON t.key = k.no
                   JOIN run AS r ON r.id = t.run JOIN experiment AS e ON e.no = r.experiment
               WHERE k.kind = $1 AND k.name = $2 AND r.status IN ($3, $4) AND r.start_time < $5
                   AND r.id > $6
               ORDER BY r.id LIMIT $7";
    let (running, scheduled) = (RunStatus::Running as i64, RunStatus::Scheduled as i64);
    let kind = KeyKind::Tag as i64;
    let rows = tx.query(sql, &params![kind, tag, running, scheduled, before, after, limit])?;
    rows.iter()
        .map(|row| {
            Ok(OpenRun {
                project: row.get("project")?,
                run: row.get("run")?,
                value: row.get("value")?,
            })
        })
        .collect()
}
