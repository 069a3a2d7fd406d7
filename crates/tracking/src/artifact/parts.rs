//! Uploads in parts as rows.

use falaj_base::{Error, Name, ProjectId, Resource, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};
use uuid::Uuid;

use super::artifact::recorded_on;
use super::grant::Issuer;
use super::path::{ArtifactPath, below};
use super::{purge, store};
use crate::experiment::ExperimentId;
use crate::run::RunId;

/// An upload that has begun and not ended. The artifact it becomes has its id.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub(super) id: Uuid,
    pub(super) tenant: TenantId,
    pub(super) project: ProjectId,
    pub(super) zone: Name,
    pub(super) path: String,
    pub(super) experiment: Option<ExperimentId>,
    pub(super) run: Option<RunId>,
    pub(super) model: Option<String>,
    /// How many parts were announced.
    pub(super) parts: u32,
    /// Who began it.
    pub(super) issuer: Issuer,
    pub(super) expires_at: Timestamp,
}

impl Upload {
    /// What writing its parts is recorded on: the same as the upload itself.
    pub(super) fn resource(&self) -> Resource {
        recorded_on((self.tenant, self.project), self.experiment, &self.path)
    }
}

/// The name under which a part refers to its blob. Two parts may be equal and share one.
pub(super) fn part_claim(artifact: Uuid, no: u32) -> String {
    format!("{}/{no}", artifact.simple())
}

const COLUMNS: &str =
    "id, tenant, project, zone, path, experiment, run, model, parts, issuer, expires_at";

pub(super) fn insert(tx: &mut Tx<'_>, upload: &Upload) -> Result<()> {
    tx.execute(
        "INSERT INTO artifact_upload
             (id, tenant, project, zone, path, experiment, run, model, parts, size, issuer,
              expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11)",
        &params![
            &upload.id.as_bytes()[..],
            upload.tenant,
            upload.project,
            &upload.zone,
            &upload.path,
            upload.experiment,
            upload.run,
            upload.model.clone(),
            upload.parts,
            serde_json::to_string(&upload.issuer).map_err(Error::internal)?,
            upload.expires_at,
        ],
    )
    .map(drop)
}

pub(super) fn find(tx: &mut Tx<'_>, id: Uuid) -> Result<Option<Upload>> {
    let sql = format!("SELECT {COLUMNS} FROM artifact_upload WHERE id = $1");
    tx.query_opt(&sql, &params![&id.as_bytes()[..]])?.as_ref().map(parse).transpose()
}

pub(super) fn count(tx: &mut Tx<'_>, project: ProjectId) -> Result<u32> {
    let sql = "SELECT COUNT(*) AS n FROM artifact_upload WHERE project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

/// Counts what has arrived, and tells how much that is by now; none if the upload has ended.
pub(super) fn grow(tx: &mut Tx<'_>, id: Uuid, by: i64) -> Result<Option<u64>> {
    let grown = tx.query_opt(
        "UPDATE artifact_upload SET size = size + $2 WHERE id = $1 RETURNING size",
        &params![&id.as_bytes()[..], by],
    )?;
    grown.map(|row| row.get("size")).transpose()
}

/// Forgets that an upload goes on; its parts stay.
pub(super) fn delete(tx: &mut Tx<'_>, id: Uuid) -> Result<bool> {
    let sql = "DELETE FROM artifact_upload WHERE id = $1";
    Ok(tx.execute(sql, &params![&id.as_bytes()[..]])? == 1)
}

/// Ends an upload and deletes its parts; `false` if it has ended already.
pub(super) fn end(tx: &mut Tx<'_>, id: Uuid) -> Result<bool> {
    let ended = delete(tx, id)?;
    if ended {
        purge::all_parts(tx, id)?;
    }
    Ok(ended)
}

pub(super) fn expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<Vec<Uuid>> {
    ids(tx.query(
        "SELECT id FROM artifact_upload WHERE expires_at < $1 ORDER BY expires_at LIMIT $2",
        &params![now, limit],
    )?)
}

/// Ends the uploads into a folder, or to the very path.
pub(super) fn end_below(tx: &mut Tx<'_>, project: ProjectId, folder: &ArtifactPath) -> Result<()> {
    let (from, end) = below(folder.as_str());
    let found = tx.query(
        "SELECT id FROM artifact_upload WHERE project = $1
         AND (path = $4 OR (path >= $2 AND path < $3))",
        &params![project, from, end, folder.as_str()],
    )?;
    end_all(tx, ids(found)?)
}

pub(super) fn end_of_experiment(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiment: ExperimentId,
) -> Result<()> {
    let found = tx.query(
        "SELECT id FROM artifact_upload WHERE project = $1 AND experiment = $2",
        &params![project, experiment],
    )?;
    end_all(tx, ids(found)?)
}

fn end_all(tx: &mut Tx<'_>, uploads: Vec<Uuid>) -> Result<()> {
    for id in uploads {
        end(tx, id)?;
    }
    Ok(())
}

fn ids(rows: Vec<Row>) -> Result<Vec<Uuid>> {
    rows.iter().map(|row| store::uuid(row, "id")).collect()
}

fn parse(row: &Row) -> Result<Upload> {
    Ok(Upload {
        id: store::uuid(row, "id")?,
        tenant: row.get("tenant")?,
        project: row.get("project")?,
        zone: row.get("zone")?,
        path: row.get("path")?,
        experiment: row.get("experiment")?,
        run: row.get("run")?,
        model: row.get("model")?,
        parts: row.get("parts")?,
        issuer: serde_json::from_str(&row.get::<String>("issuer")?).map_err(Error::internal)?,
        expires_at: row.get("expires_at")?,
    })
}
