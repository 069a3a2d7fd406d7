//! Offsets and records put aside, in the database.

use falaj_base::{Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::status::State;
use crate::name::FeatureName;

/// A row for each partition that was ever read: `place` names the stream, the topic and the subject,
/// since offsets are those of one topic. The partition -1 stands for a topic that was not found. A
/// record that is no row is put aside once, by its offset.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_stream (
        project TEXT NOT NULL REFERENCES project (id), source TEXT NOT NULL, place TEXT NOT NULL,
        part INTEGER NOT NULL, next_offset INTEGER, lag INTEGER NOT NULL, rows INTEGER NOT NULL,
        bad INTEGER NOT NULL, passed INTEGER NOT NULL, skipped INTEGER NOT NULL,
        state TEXT NOT NULL, reason TEXT, since INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        PRIMARY KEY (project, source, place, part)) CLUSTERED;
    CREATE TABLE feature_quarantine (
        id TEXT PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id), source TEXT NOT NULL,
        place TEXT NOT NULL, part INTEGER NOT NULL, at_offset INTEGER NOT NULL,
        at INTEGER NOT NULL, reason TEXT NOT NULL, size INTEGER NOT NULL, record BLOB,
        UNIQUE (project, source, place, part, at_offset));
    CREATE INDEX feature_quarantine_source ON feature_quarantine (project, source, id);
    CREATE INDEX feature_quarantine_at ON feature_quarantine (at);";

/// The partition that stands for the whole topic.
pub(super) const WHOLE: i64 = -1;

/// Which partition of which source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) project: ProjectId,
    pub(super) source: FeatureName,
    pub(super) place: String,
    pub(super) part: i64,
}

/// A partition as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) part: i64,
    pub(super) next: Option<i64>,
    pub(super) lag: i64,
    pub(super) rows: i64,
    pub(super) bad: i64,
    pub(super) passed: i64,
    pub(super) skipped: i64,
    pub(super) state: State,
    pub(super) reason: Option<String>,
    pub(super) since: Timestamp,
    pub(super) updated_at: Timestamp,
}

/// What one step read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from: i64,
    pub(super) next: i64,
    pub(super) lag: i64,
    pub(super) rows: i64,
    pub(super) bad: i64,
    pub(super) passed: i64,
    pub(super) skipped: i64,
}

/// All sources that may be streams, by project. Their latest forms are looked at by the caller.
pub(super) fn sources(tx: &mut Tx<'_>) -> Result<Vec<(ProjectId, FeatureName)>> {
    let rows = tx.query(
        "SELECT d.project, d.name FROM feature_definition AS d JOIN feature_version AS v
             ON v.project = d.project AND v.noun = d.noun AND v.name = d.name
                 AND v.version = d.latest
         WHERE d.noun = 'source' AND v.form LIKE '%\"kind\":\"stream\"%'
         ORDER BY d.project, d.name",
        &[],
    )?;
    let read = |row: &Row| {
        let name: String = row.get("name")?;
        Ok((row.get("project")?, FeatureName::new(name).map_err(Error::internal)?))
    };
    rows.iter().map(read).collect()
}

const COLUMNS: &str =
    "part, next_offset, lag, rows, bad, passed, skipped, state, reason, since, updated_at";

pub(super) fn find(tx: &mut Tx<'_>, key: &Key) -> Result<Option<Standing>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM feature_stream
         WHERE project = $1 AND source = $2 AND place = $3 AND part = $4"
    );
    let values = params![key.project, key.source.as_str(), &key.place, key.part];
    tx.query_opt(&sql, &values)?.as_ref().map(read).transpose()
}

/// The partitions of a topic, in order.
pub(super) fn of_source(
    tx: &mut Tx<'_>,
    project: ProjectId,
    source: &FeatureName,
    place: &str,
) -> Result<Vec<Standing>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM feature_stream
         WHERE project = $1 AND source = $2 AND place = $3 ORDER BY part"
    );
    let rows = tx.query(&sql, &params![project, source.as_str(), place])?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Standing> {
    let state: String = row.get("state")?;
    Ok(Standing {
        part: row.get("part")?,
        next: row.get("next_offset")?,
        lag: row.get("lag")?,
        rows: row.get("rows")?,
        bad: row.get("bad")?,
        passed: row.get("passed")?,
        skipped: row.get("skipped")?,
        state: State::parse(&state).ok_or_else(|| Error::internal("a state that is none"))?,
        reason: row.get("reason")?,
        since: row.get("since")?,
        updated_at: row.get("updated_at")?,
    })
}

/// Notes where a partition is begun, unless it was.
pub(super) fn begin(tx: &mut Tx<'_>, key: &Key, next: i64) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO feature_stream (project, source, place, part, next_offset, lag, rows, bad,
             passed, skipped, state, reason, since, updated_at)
         VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, 0, $6, NULL, $7, $7)
         ON CONFLICT (project, source, place, part) DO UPDATE
             SET next_offset = COALESCE(feature_stream.next_offset, excluded.next_offset)",
        &params![
            key.project,
            key.source.as_str(),
            &key.place,
            key.part,
            next,
            State::Running.as_str(),
            now
        ],
    )
    .map(drop)
}

/// Moves the offset from where it stood, which also means that the reader runs; false if it stood
/// elsewhere.
pub(super) fn advance(tx: &mut Tx<'_>, key: &Key, step: &Step) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE feature_stream SET next_offset = $1, lag = $2, rows = rows + $3, bad = bad + $4,
             passed = passed + $5, skipped = skipped + $6, reason = NULL,
             since = CASE WHEN state = $7 THEN since ELSE $8 END, state = $7, updated_at = $8
         WHERE project = $9 AND source = $10 AND place = $11 AND part = $12 AND next_offset = $13",
        &params![
            step.next,
            step.lag,
            step.rows,
            step.bad,
            step.passed,
            step.skipped,
            State::Running.as_str(),
            now,
            key.project,
            key.source.as_str(),
            &key.place,
            key.part,
            step.from
        ],
    )?;
    Ok(changed == 1)
}

/// Notes a state; tells whether it is another than before.
pub(super) fn note(tx: &mut Tx<'_>, key: &Key, state: State, reason: Option<&str>) -> Result<bool> {
    let before = find(tx, key)?;
    if let Some(before) = &before
        && before.state == state
        && before.reason.as_deref() == reason
    {
        return Ok(false);
    }
    let now = tx.now();
    tx.execute(
        "INSERT INTO feature_stream (project, source, place, part, next_offset, lag, rows, bad,
             passed, skipped, state, reason, since, updated_at)
         VALUES ($1, $2, $3, $4, NULL, 0, 0, 0, 0, 0, $5, $6, $7, $7)
         ON CONFLICT (project, source, place, part) DO UPDATE SET state = excluded.state,
             reason = excluded.reason, updated_at = excluded.updated_at,
             since = CASE WHEN feature_stream.state = excluded.state THEN feature_stream.since
                          ELSE excluded.since END",
        &params![
            key.project,
            key.source.as_str(),
            &key.place,
            key.part,
            state.as_str(),
            reason,
            now
        ],
    )?;
    Ok(before.is_none_or(|before| before.state != state))
}

/// Forgets that a topic could not be found.
pub(super) fn found(tx: &mut Tx<'_>, key: &Key) -> Result<()> {
    tx.execute(
        "DELETE FROM feature_stream
         WHERE project = $1 AND source = $2 AND place = $3 AND part = $4",
        &params![key.project, key.source.as_str(), &key.place, WHOLE],
    )
    .map(drop)
}
