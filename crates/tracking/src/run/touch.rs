//! Which runs have changed, and when: what a search reads to bring its columns up to date.
//!
//! A change appends a row here and leaves the run's own row as it is. PostgreSQL keeps a dead
//! version of every row that is updated until a vacuum comes by, and a run that logs a thousand
//! metrics a second would be buried under them.
//!
//! What a request logs is a row of `metric_log` anyway, and that row says the same: it has no other here,
//! until compaction takes it away and leaves its version behind.
//!
//! Must hold: of a run's rows, in both tables, the one with the greatest version stays. Others say nothing
//! that it does not say, and are removed now and then.

use falaj_base::Result;
use falaj_store::db::{Held, Row, Tx, params};

use super::id::RunId;
use crate::experiment::Stage;

/// Runs that were there before the table are carried over with the version they had.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE run_touch (
        run BLOB NOT NULL, version INTEGER NOT NULL, experiment INTEGER NOT NULL,
        PRIMARY KEY (run, version)) CLUSTERED;
    INSERT INTO run_touch (run, version, experiment) SELECT id, touched, experiment FROM run;
    CREATE INDEX run_touch_order ON run_touch (experiment, version, run);
    DROP INDEX run_touched;
    ALTER TABLE run DROP COLUMN touched;
    CREATE INDEX run_experiment ON run (experiment);";

/// The points stay last: see [`crate::metric::store`]. Rows that were there before have theirs in
/// `run_touch`, and zero here.
pub(crate) const LOG_SCHEMA: &str = "
    CREATE TABLE metric_log_with_version (
        run BLOB NOT NULL, id BLOB NOT NULL, version INTEGER NOT NULL, experiment INTEGER NOT NULL,
        points BLOB NOT NULL, PRIMARY KEY (run, id)) CLUSTERED;
    INSERT INTO metric_log_with_version (run, id, version, experiment, points)
        SELECT run, id, 0, 0, points FROM metric_log;
    DROP TABLE metric_log;
    ALTER TABLE metric_log_with_version RENAME TO metric_log;
    CREATE INDEX metric_log_order ON metric_log (experiment, version, run);";

/// The runs of an experiment, `$1`, that have changed at or after a version, `$2`.
pub(crate) const SINCE: &str = "
    SELECT run FROM run_touch WHERE experiment = $1 AND version >= $2
    UNION SELECT run FROM metric_log WHERE experiment = $1 AND version >= $2";

/// A change of a run that a row of the log told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Logged {
    pub(crate) version: i64,
    pub(crate) experiment: i64,
}

const HELD: &str =
    "experiment, stage, (SELECT e.id FROM experiment e WHERE e.no = run.experiment) AS shown_as";

/// The row for which all changes of a run wait.
pub(crate) fn held(run: RunId) -> Held {
    Held { table: "run", key: "id", columns: HELD, id: run.into() }
}

/// The stage of a run whose row is held; none if it, or its experiment, is purged.
pub(crate) fn stage(held: Option<&Row>) -> Result<Option<Stage>> {
    let Some(row) = held else { return Ok(None) };
    if row.get::<i64>("shown_as")? < 0 { Ok(None) } else { row.get("stage").map(Some) }
}

/// Marks a run as changed and tells in which stage it is. It is the first statement of every
/// change, so that changes of one run wait for each other here and nowhere else.
pub(crate) fn touch(tx: &mut Tx<'_>, run: RunId) -> Result<Option<Stage>> {
    let held = tx.hold(&held(run))?;
    let (Some(row), Some(stage)) = (&held, stage(held.as_ref())?) else { return Ok(None) };
    note(tx, run, row.get("experiment")?)?;
    Ok(Some(stage))
}

/// Waits for other changes of a run and keeps them waiting, without marking it as changed itself.
pub(crate) fn hold_still(tx: &mut Tx<'_>, run: RunId) -> Result<Option<Stage>> {
    stage(tx.hold(&held(run))?.as_ref())
}

/// Marks a run as changed, without waiting for anybody; gives the version.
pub(crate) fn note(tx: &mut Tx<'_>, run: RunId, experiment: i64) -> Result<i64> {
    let version = tx.version()?;
    insert(tx, run, Logged { version, experiment })?;
    Ok(version)
}

fn insert(tx: &mut Tx<'_>, run: RunId, Logged { version, experiment }: Logged) -> Result<()> {
    tx.put(
        "INSERT INTO run_touch (run, version, experiment) VALUES ($1, $2, $3)
         ON CONFLICT (run, version) DO NOTHING",
        &params![run, version, experiment],
    )
}

/// Marks all runs of an experiment as changed.
pub(crate) fn note_all(tx: &mut Tx<'_>, experiment: i64) -> Result<()> {
    let version = tx.version()?;
    tx.execute(
        "INSERT INTO run_touch (run, version, experiment)
         SELECT id, $2, experiment FROM run WHERE experiment = $1
         ON CONFLICT (run, version) DO NOTHING",
        &params![experiment, version],
    )
    .map(drop)
}

/// Forgets the changes of a run but for the last, whose version it gives; `moved` is the last that rows told
/// of which are not in the log any more. Those before `since` are known to be forgotten: PostgreSQL would
/// step over what is left of each of them until a vacuum comes by.
pub(crate) fn settle(
    tx: &mut Tx<'_>,
    run: RunId,
    since: Option<i64>,
    moved: Option<Logged>,
) -> Result<Option<i64>> {
    if let Some(moved) = moved {
        insert(tx, run, moved)?;
    }
    let last = "SELECT MAX(version) AS last FROM run_touch WHERE run = $1";
    let last: Option<i64> = tx.query_one(last, &params![run])?.get("last")?;
    if let Some(last) = last {
        let moved = moved.map_or(i64::MAX, |moved| moved.version);
        tx.execute(
            "DELETE FROM run_touch WHERE run = $1 AND version >= $2 AND version < $3",
            &params![run, since.unwrap_or(i64::MIN).min(moved), last],
        )?;
    }
    Ok(last)
}

/// Forgets all of a run that is taken away.
pub(super) fn forget(tx: &mut Tx<'_>, run: RunId) -> Result<()> {
    tx.execute("DELETE FROM run_touch WHERE run = $1", &params![run]).map(drop)
}

/// After a restore from the other engine, versions may be ahead of this engine's count: such runs
/// would be read again by every search. They are stamped anew.
pub(crate) fn settle_versions(tx: &mut Tx<'_>) -> Result<()> {
    let version = tx.version()?;
    let ahead = tx.query(
        "SELECT e.no FROM experiment e
         WHERE (SELECT MAX(t.version) FROM run_touch t WHERE t.experiment = e.no) > $1
            OR (SELECT MAX(l.version) FROM metric_log l WHERE l.experiment = e.no) > $1",
        &params![version],
    )?;
    for row in ahead {
        let experiment: i64 = row.get("no")?;
        tx.execute(
            "UPDATE metric_log SET version = $2 WHERE experiment = $1 AND version > $2",
            &params![experiment, version],
        )?;
        let runs = tx.query(
            "SELECT DISTINCT run FROM run_touch WHERE experiment = $1 AND version > $2",
            &params![experiment, version],
        )?;
        for row in runs {
            let run: RunId = row.get("run")?;
            forget(tx, run)?;
            note(tx, run, experiment)?;
        }
    }
    Ok(())
}
