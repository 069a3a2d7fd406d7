//! Approvals in the database.

use falaj_base::{Ctx, Error, ProjectId, Result, code};
use falaj_store::db::{Row, Tx, params};
use serde_json::json;

use super::approval::{Approval, ApprovalId, Status};
use crate::card::store as cards;
use crate::evidence::store as evidence;
use crate::promotion::Target;
use crate::signing::Sha256;
use crate::version::Version;

/// `fingerprint` is what the version was when it was asked for.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE model_approval (
        id BLOB PRIMARY KEY, project TEXT NOT NULL, model BLOB NOT NULL, version INTEGER NOT NULL,
        kind TEXT NOT NULL, target TEXT NOT NULL, status TEXT NOT NULL, fingerprint TEXT NOT NULL,
        note TEXT NOT NULL, requested_by TEXT NOT NULL, requested_by_name TEXT NOT NULL,
        requested_at INTEGER NOT NULL, decided_by TEXT, decided_by_name TEXT, decided_at INTEGER,
        reason TEXT);
    CREATE INDEX model_approval_project ON model_approval (project, id);
    CREATE INDEX model_approval_version ON model_approval (model, version, kind, target);";

const COLUMNS: &str = "a.id, m.name, a.version, a.kind, a.target, a.status, a.fingerprint,
    a.note, a.requested_by, a.requested_by_name, a.requested_at, a.decided_by, a.decided_by_name,
    a.decided_at, a.reason";

/// A request with what it was asked about.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) approval: Approval,
    pub(super) number: i64,
    fingerprint: String,
}

impl Kept {
    /// Looks whether the version is still what was asked about.
    pub(super) fn check_stale(&mut self, tx: &mut Tx<'_>, now: Option<&Version>) -> Result<()> {
        let now = now.map(|version| fingerprint(tx, version)).transpose()?;
        self.approval.stale = now.as_ref() != Some(&self.fingerprint);
        Ok(())
    }
}

/// What an approval is about: the files, the card and the description. Tags are labels.
pub(super) fn fingerprint(tx: &mut Tx<'_>, version: &Version) -> Result<String> {
    let of = (version.model, version.number);
    let card = cards::find(tx, of)?;
    let digest = evidence::digest(tx, of)?.and_then(|(_, digest)| digest);
    let text = json!({
        "source": version.source,
        "description": version.description,
        "digest": digest,
        "card": card.map(|card| json!({ "fields": card.fields, "markdown": card.markdown })),
    });
    Ok(Sha256::of(text.to_string().as_bytes()).to_string())
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    project: ProjectId,
    version: &Version,
    target: &Target,
    (ctx, note): (&Ctx, &str),
) -> Result<ApprovalId> {
    let (id, now, (kind, name)) = (ApprovalId::new(), tx.now(), target.parts());
    let fingerprint = fingerprint(tx, version)?;
    tx.execute(
        "INSERT INTO model_approval (id, project, model, version, kind, target, status,
             fingerprint, note, requested_by, requested_by_name, requested_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        &params![
            id,
            project,
            version.model,
            version.number,
            kind,
            name,
            Status::Open,
            fingerprint,
            note,
            ctx.principal.id,
            &ctx.principal.name,
            now,
        ],
    )?;
    Ok(id)
}

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId, id: ApprovalId) -> Result<Option<Kept>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM model_approval a JOIN registered_model m ON m.id = a.model
         WHERE a.project = $1 AND a.id = $2"
    );
    tx.query_opt(&sql, &params![project, id])?.as_ref().map(read).transpose()
}

/// Requests before an id, the newest first. An empty status or model means any.
pub(super) fn before(
    tx: &mut Tx<'_>,
    project: ProjectId,
    (id, status, model): (ApprovalId, &str, &str),
    limit: usize,
) -> Result<Vec<Kept>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM model_approval a JOIN registered_model m ON m.id = a.model
         WHERE a.project = $1 AND a.id < $2 AND ($3 = '' OR a.status = $3)
           AND ($4 = '' OR m.name = $4)
         ORDER BY a.id DESC LIMIT $5"
    );
    tx.query(&sql, &params![project, id, status, model, limit])?.iter().map(read).collect()
}

/// Decides a request, unless it is not in the state that was decided on any more.
pub(super) fn decide(
    tx: &mut Tx<'_>,
    id: ApprovalId,
    (from, to): (Status, Status),
    (ctx, reason): (&Ctx, Option<&str>),
) -> Result<bool> {
    let now = tx.now();
    let changed = tx.execute(
        "UPDATE model_approval SET status = $3, decided_by = $4, decided_by_name = $5,
             decided_at = $6, reason = $7
         WHERE id = $1 AND status = $2",
        &params![id, from, to, ctx.principal.id, &ctx.principal.name, now, reason],
    )?;
    Ok(changed == 1)
}

/// An open request for the same thing.
pub(super) fn open(
    tx: &mut Tx<'_>,
    version: &Version,
    target: &Target,
) -> Result<Option<ApprovalId>> {
    with_status(tx, version, target, Status::Open)
}

/// An approval of exactly this version, as it is now, for exactly this target.
pub(crate) fn valid(
    tx: &mut Tx<'_>,
    version: &Version,
    target: &Target,
) -> Result<Option<ApprovalId>> {
    with_status(tx, version, target, Status::Approved)
}

fn with_status(
    tx: &mut Tx<'_>,
    version: &Version,
    target: &Target,
    status: Status,
) -> Result<Option<ApprovalId>> {
    let (fingerprint, (kind, name)) = (fingerprint(tx, version)?, target.parts());
    let rows = tx.query(
        "SELECT id FROM model_approval WHERE model = $1 AND version = $2 AND kind = $3
           AND target = $4 AND status = $5 AND fingerprint = $6 ORDER BY id LIMIT 1",
        &params![version.model, version.number, kind, name, status, fingerprint],
    )?;
    rows.first().map(|row| row.get("id")).transpose()
}

/// Uses an approval up: once, and not after it was withdrawn.
pub(crate) fn spend(tx: &mut Tx<'_>, id: ApprovalId) -> Result<()> {
    let sql = "UPDATE model_approval SET status = $2 WHERE id = $1 AND status = $3";
    if tx.execute(sql, &params![id, Status::Used, Status::Approved])? == 1 {
        return Ok(());
    }
    let text = format!("the approval {id} was used or withdrawn meanwhile; look at it again");
    Err(Error::new(&code::CHANGED, text))
}

fn read(row: &Row) -> Result<Kept> {
    let (kind, target): (String, String) = (row.get("kind")?, row.get("target")?);
    let (alias, stage) = match Target::from_parts(&kind, &target)? {
        Target::Alias(alias) => (Some(alias), None),
        Target::Stage(stage) => (None, Some(stage.as_str().to_owned())),
    };
    let number: i64 = row.get("version")?;
    Ok(Kept {
        approval: Approval {
            id: row.get("id")?,
            model: row.get("name")?,
            version: number.to_string(),
            alias,
            stage,
            status: row.get("status")?,
            stale: false,
            note: row.get("note")?,
            requested_by: row.get("requested_by")?,
            requested_by_name: row.get("requested_by_name")?,
            requested_at: row.get("requested_at")?,
            decided_by: row.get("decided_by")?,
            decided_by_name: row.get("decided_by_name")?,
            decided_at: row.get("decided_at")?,
            reason: row.get("reason")?,
        },
        number,
        fingerprint: row.get("fingerprint")?,
    })
}
