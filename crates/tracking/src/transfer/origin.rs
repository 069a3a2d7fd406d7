//! Which runs and logged models came from where, and up to which state of their source.

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::{FromValue, Tx, Value, params};

use super::wire::StageHere;
use super::{Mover, Way, not_from};
use crate::access::Home;
use crate::experiment::Stage;
use crate::logged_model::ModelHome;
use crate::run::RunId;
use crate::{RUN_WRITE, Tracking};

/// `mark` is what the source looked like when all of it had come over, in the words of whoever moved
/// it. A row outlives what it is of: what was purged here is known to have been here.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE imported (
        kind INTEGER NOT NULL, subject BLOB NOT NULL, project TEXT NOT NULL, source TEXT NOT NULL,
        mark TEXT, at INTEGER NOT NULL, PRIMARY KEY (kind, subject)) CLUSTERED;
    CREATE INDEX imported_source ON imported (project, source, kind, subject);";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Run = 1,
    Model = 2,
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Self {
        Self::Int(kind as i64)
    }
}

impl FromValue for Kind {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(1) => Some(Self::Run),
            Value::Int(2) => Some(Self::Model),
            _ => None,
        }
    }
}

impl Tracking {
    /// A run that something is added to, or linked with: it must be here, and one that the caller
    /// may bring something into. Where it came from is asked again where it is written:
    /// [`check_run`].
    pub(super) async fn receiving_run(&self, mover: &Mover, run: &str) -> Result<Home> {
        if mover.way == Way::Sync {
            self.home(&mover.call, run, &RUN_WRITE).await?;
        }
        self.home(&mover.call, run, mover.way.action()).await
    }

    /// The same of a logged model.
    pub(super) async fn receiving_model(&self, mover: &Mover, model: &str) -> Result<ModelHome> {
        if mover.way == Way::Sync {
            self.logged_model_home(&mover.call, model, &RUN_WRITE).await?;
        }
        self.logged_model_home(&mover.call, model, mover.way.action()).await
    }
}

/// Refuses a run that did not come from the source, in the transaction that writes to it.
pub(super) fn check_run(
    tx: &mut Tx<'_>,
    mover: &Mover,
    field: &'static str,
    run: RunId,
) -> Result<()> {
    let of = (Kind::Run, &run.0.as_bytes()[..]);
    if is_from(tx, of, mover.project(), &mover.source)? {
        return Ok(());
    }
    Err(not_from(mover, field, &format!("the run {run}")))
}

/// What became of something that was sent.
pub(super) enum Fate {
    Written,
    /// It is here from elsewhere, and the same.
    Same,
    /// It was deleted or purged here, and a sync brings nothing back.
    Left(StageHere),
}

/// How something that was sent compares with what is here under its id; looked at only if it did
/// not come from the same source.
pub(super) struct Likeness<'a> {
    /// Whether it is the same.
    pub(super) same: &'a dyn Fn(&mut Tx<'_>) -> Result<bool>,
    /// Whether what is here is an earlier state of it.
    pub(super) earlier: &'a dyn Fn(&mut Tx<'_>) -> Result<bool>,
}

/// Decides whether a source may write to something, which is here in a stage or not at all, and
/// notes where it comes from. Tells what became of it otherwise; refuses what is none of its
/// business.
pub(super) fn admit(
    tx: &mut Tx<'_>,
    mover: &Mover,
    of: (Kind, &[u8]),
    here: Option<Stage>,
    likeness: &Likeness<'_>,
    refusal: impl FnOnce() -> Error,
) -> Result<Option<Fate>> {
    let sync = mover.way == Way::Sync;
    let Some(stage) = here else {
        if sync && has_come(tx, of, mover.project())? {
            return Ok(Some(Fate::Left(StageHere::Gone)));
        }
        return note(tx, of, mover.project(), &mover.source).map(|()| None);
    };
    if !is_from(tx, of, mover.project(), &mover.source)? {
        if (likeness.same)(tx)? {
            return Ok(Some(Fate::Same));
        }
        // It came before it was kept from where: an operator may say so.
        if sync || !is_unknown(tx, of)? || !(likeness.earlier)(tx)? {
            return Err(refusal());
        }
        note(tx, of, mover.project(), &mover.source)?;
    }
    if sync && stage == Stage::Deleted {
        return Ok(Some(Fate::Left(StageHere::Deleted)));
    }
    Ok(None)
}

/// Whether something came from this source into this project.
pub(super) fn is_from(
    tx: &mut Tx<'_>,
    (kind, subject): (Kind, &[u8]),
    project: ProjectId,
    source: &str,
) -> Result<bool> {
    let sql = "SELECT kind FROM imported
               WHERE kind = $1 AND subject = $2 AND project = $3 AND source = $4";
    Ok(tx.query_opt(sql, &params![kind, subject, project, source])?.is_some())
}

/// Whether something has ever come into this project, from whichever source. It may have been
/// purged since.
fn has_come(tx: &mut Tx<'_>, (kind, subject): (Kind, &[u8]), project: ProjectId) -> Result<bool> {
    let sql = "SELECT kind FROM imported WHERE kind = $1 AND subject = $2 AND project = $3";
    Ok(tx.query_opt(sql, &params![kind, subject, project])?.is_some())
}

/// Whether nothing is known of where something came from: it was made here, or came before that
/// was kept.
fn is_unknown(tx: &mut Tx<'_>, (kind, subject): (Kind, &[u8])) -> Result<bool> {
    let sql = "SELECT kind FROM imported WHERE kind = $1 AND subject = $2";
    Ok(tx.query_opt(sql, &params![kind, subject])?.is_none())
}

/// Notes where something new came from. Its mark is not reached yet.
fn note(
    tx: &mut Tx<'_>,
    (kind, subject): (Kind, &[u8]),
    project: ProjectId,
    source: &str,
) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO imported (kind, subject, project, source, mark, at)
         VALUES ($1, $2, $3, $4, NULL, $5)
         ON CONFLICT (kind, subject) DO UPDATE SET project = excluded.project,
             source = excluded.source, mark = NULL, at = excluded.at",
        &params![kind, subject, project, source, now],
    )
    .map(drop)
}

/// Tells whether it came from this source.
pub(super) fn settle(
    tx: &mut Tx<'_>,
    (kind, subject): (Kind, &[u8]),
    project: ProjectId,
    source: &str,
    mark: &str,
) -> Result<bool> {
    let changed = tx.execute(
        "UPDATE imported SET mark = $5
         WHERE kind = $1 AND subject = $2 AND project = $3 AND source = $4",
        &params![kind, subject, project, source, mark],
    )?;
    Ok(changed == 1)
}

/// One thing that came from a source.
#[derive(Debug)]
pub(super) struct Came {
    pub(super) kind: Kind,
    pub(super) subject: Vec<u8>,
    pub(super) mark: Option<String>,
}

/// What came from a source, after a place in the order of kinds and ids.
pub(super) fn after(
    tx: &mut Tx<'_>,
    project: ProjectId,
    source: &str,
    (kind, subject): (i64, &[u8]),
    limit: usize,
) -> Result<Vec<Came>> {
    let rows = tx.query(
        "SELECT kind, subject, mark FROM imported
         WHERE project = $1 AND source = $2 AND (kind > $3 OR (kind = $3 AND subject > $4))
         ORDER BY kind, subject LIMIT $5",
        &params![project, source, kind, subject, limit],
    )?;
    let read = |row: &falaj_store::db::Row| {
        Ok(Came { kind: row.get("kind")?, subject: row.get("subject")?, mark: row.get("mark")? })
    };
    rows.iter().map(read).collect()
}
