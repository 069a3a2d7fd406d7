//! What whoever serves requests tells the one who schedules, through the database: it may be another
//! server, and it may be away.
//!
//! Reports of a job come by the thousand: they are one note, until it is taken.
//!
//! A note only says where to look; the rows of the domain are the truth. So a note may be taken before
//! it is acted upon: whoever begins anew looks everywhere.

use falaj_base::Result;
use falaj_store::db::{Row, Tx, params};
use uuid::Uuid;

use crate::name::JobId;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_inbox (id TEXT PRIMARY KEY, kind TEXT NOT NULL, job TEXT);
    CREATE TABLE training_leader (id INTEGER PRIMARY KEY, holder TEXT NOT NULL);";

/// Where a folder lies that a deleted job left: `POOL/SERVER`, without a server where all of them see it.
pub(crate) const PLACES: &str = "
    ALTER TABLE training_inbox ADD COLUMN place TEXT;
    CREATE INDEX training_inbox_folder ON training_inbox (kind, id);";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Submitted(JobId),
    Cancelled(JobId),
    /// What another server ran of it is gone.
    Lost(JobId),
    /// A rank reported something.
    Reported(JobId),
    Queues,
    Budgets,
    /// Nodes came, or are to go.
    Nodes,
}

pub(crate) fn note(tx: &mut Tx<'_>, note: &Note) -> Result<()> {
    let (kind, job) = match note {
        Note::Submitted(job) => ("submitted", Some(*job)),
        Note::Cancelled(job) => ("cancelled", Some(*job)),
        Note::Lost(job) => ("lost", Some(*job)),
        Note::Reported(job) => ("reported", Some(*job)),
        Note::Queues => ("queues", None),
        Note::Budgets => ("budgets", None),
        Note::Nodes => ("nodes", None),
    };
    if let Note::Reported(job) = note {
        let sql = "INSERT INTO training_inbox (id, kind, job) VALUES ($1, $2, $3)
                   ON CONFLICT (id) DO NOTHING";
        return tx.execute(sql, &params![format!("{kind}-{job}"), kind, *job]).map(drop);
    }
    tx.put(
        "INSERT INTO training_inbox (id, kind, job) VALUES ($1, $2, $3)",
        &params![Uuid::now_v7().simple().to_string(), kind, job],
    )
}

/// Whether there is something to take.
pub(crate) fn any(tx: &mut Tx<'_>) -> Result<bool> {
    let sql = "SELECT 1 AS one FROM training_inbox WHERE kind NOT IN ('runs', 'folder') LIMIT 1";
    Ok(tx.query_opt(sql, &[])?.is_some())
}

/// Notes, with the end of a job, that its runs do not know of it yet. It stays until they do: see
/// [`runs_know`].
pub(crate) fn runs_are_open(tx: &mut Tx<'_>, job: JobId) -> Result<()> {
    let sql = "INSERT INTO training_inbox (id, kind, job) VALUES ($1, 'runs', $2)
               ON CONFLICT (id) DO NOTHING";
    tx.execute(sql, &params![format!("runs-{job}"), job]).map(drop)
}

pub(crate) fn runs_know(tx: &mut Tx<'_>, job: JobId) -> Result<()> {
    let sql = "DELETE FROM training_inbox WHERE id = $1";
    tx.execute(sql, &params![format!("runs-{job}")]).map(drop)
}

/// Whether runs of a job do not know of its end.
pub(crate) fn has_open_runs(tx: &mut Tx<'_>, job: JobId) -> Result<bool> {
    let sql = "SELECT 1 AS one FROM training_inbox WHERE id = $1";
    Ok(tx.query_opt(sql, &params![format!("runs-{job}")])?.is_some())
}

/// Some jobs whose runs do not know of their end.
pub(crate) fn open_runs(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<JobId>> {
    let sql = "SELECT job FROM training_inbox WHERE kind = 'runs' ORDER BY id LIMIT $1";
    tx.query(sql, &params![limit])?.iter().map(|row| row.get("job")).collect()
}

/// The places where starts of a job may have left a folder.
pub(crate) fn places_of(tx: &mut Tx<'_>, job: JobId) -> Result<Vec<String>> {
    let sql = "SELECT DISTINCT pool, COALESCE(server, '') AS server FROM training_attempt
               WHERE job = $1";
    let rows = tx.query(sql, &params![job])?;
    let place =
        |row: &Row| Ok(format!("{}/{}", row.get::<String>("pool")?, row.get::<String>("server")?));
    rows.iter().map(place).collect()
}

/// Notes, with the end of a job's rows, that a folder of it may be left in a place. It stays until that is
/// gone: see [`folder_is_gone`].
pub(crate) fn folder_is_left(tx: &mut Tx<'_>, job: JobId, place: &str) -> Result<()> {
    let sql = "INSERT INTO training_inbox (id, kind, job, place) VALUES ($1, 'folder', $2, $3)
               ON CONFLICT (id) DO NOTHING";
    tx.execute(sql, &params![format!("folder-{job}-{place}"), job, place]).map(drop)
}

pub(crate) fn folder_is_gone(tx: &mut Tx<'_>, note: &str) -> Result<()> {
    tx.execute("DELETE FROM training_inbox WHERE id = $1", &params![note]).map(drop)
}

/// Some notes of folders that are left in a place, after one; those that name none, if it is empty.
pub(crate) fn left_folders(
    tx: &mut Tx<'_>,
    place: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, JobId)>> {
    let sql = "SELECT id, job FROM training_inbox
               WHERE kind = 'folder' AND COALESCE(place, '') = $1 AND id > $2
               ORDER BY id LIMIT $3";
    let rows = tx.query(sql, &params![place, after, limit])?;
    rows.iter().map(|row| Ok((row.get("id")?, row.get("job")?))).collect()
}

/// The places that are named by notes of folders.
pub(crate) fn folder_places(tx: &mut Tx<'_>) -> Result<Vec<String>> {
    let sql = "SELECT DISTINCT place FROM training_inbox
               WHERE kind = 'folder' AND place IS NOT NULL ORDER BY place";
    tx.query(sql, &[])?.iter().map(|row| row.get("place")).collect()
}

/// Takes some notes, the oldest first.
pub(crate) fn take(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<Note>> {
    let sql = "SELECT id, kind, job FROM training_inbox WHERE kind NOT IN ('runs', 'folder')
               ORDER BY id LIMIT $1";
    let rows = tx.query(sql, &params![limit])?;
    let mut notes = Vec::with_capacity(rows.len());
    let mut ids = Vec::with_capacity(rows.len());
    for row in &rows {
        let job: Option<JobId> = row.get("job")?;
        let kind: String = row.get("kind")?;
        notes.extend(match (kind.as_str(), job) {
            ("submitted", Some(job)) => Some(Note::Submitted(job)),
            ("cancelled", Some(job)) => Some(Note::Cancelled(job)),
            ("lost", Some(job)) => Some(Note::Lost(job)),
            ("reported", Some(job)) => Some(Note::Reported(job)),
            ("queues", _) => Some(Note::Queues),
            ("budgets", _) => Some(Note::Budgets),
            ("nodes", _) => Some(Note::Nodes),
            _ => None,
        });
        ids.push(params![row.get::<String>("id")?]);
    }
    if !ids.is_empty() {
        tx.execute_many("DELETE FROM training_inbox WHERE id = $1", ids.into_iter())?;
    }
    Ok(notes)
}

/// Makes `holder` the one who schedules. Whoever did before notices with its next write.
pub(crate) fn lead(tx: &mut Tx<'_>, holder: &str, server: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO training_leader (id, holder, server) VALUES (1, $1, $2)
         ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, server = excluded.server",
        &params![holder, server],
    )
    .map(drop)
}

/// Whether `holder` still is the one who schedules.
pub(crate) fn leads(tx: &mut Tx<'_>, holder: &str) -> Result<bool> {
    let row = tx.query_opt("SELECT holder FROM training_leader WHERE id = 1", &[])?;
    row.map_or(Ok(false), |row| Ok(row.get::<String>("holder")? == holder))
}
