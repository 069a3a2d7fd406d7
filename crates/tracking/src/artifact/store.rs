//! Artifacts and their parts as rows.
//!
//! The table is kept in the order of its paths, so that a folder is a stretch of it: listing,
//! deleting and copying one cost what lies in it, however much lies elsewhere.

use falaj_base::{BlobId, Error, ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};
use uuid::Uuid;

use super::artifact::Artifact;
use super::path::{ArtifactPath, below};
use crate::experiment::{ExperimentId, Stage};
use crate::logged_model::ModelId;

/// `experiment` is the number within the project. The rows of `artifact_part` hold the parts of
/// an upload that goes on, and stay as the content of the artifact it becomes.
pub const SCHEMA: &str = "
    CREATE TABLE artifact (
        project TEXT NOT NULL REFERENCES project (id), path TEXT NOT NULL, id BLOB NOT NULL,
        experiment INTEGER, run BLOB, model TEXT, blob TEXT, size INTEGER NOT NULL,
        content_type TEXT NOT NULL, created_at INTEGER NOT NULL,
        PRIMARY KEY (project, path)) CLUSTERED;
    CREATE INDEX artifact_experiment ON artifact (project, experiment);
    CREATE TABLE artifact_part (
        artifact BLOB NOT NULL, no INTEGER NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
        tag TEXT NOT NULL, PRIMARY KEY (artifact, no)) CLUSTERED;
    CREATE TABLE artifact_upload (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL REFERENCES project (id),
        zone TEXT NOT NULL, path TEXT NOT NULL, experiment INTEGER, run BLOB, model TEXT,
        parts INTEGER NOT NULL, size INTEGER NOT NULL, issuer TEXT NOT NULL,
        expires_at INTEGER NOT NULL);
    CREATE INDEX artifact_upload_path ON artifact_upload (project, path);
    CREATE INDEX artifact_upload_expires ON artifact_upload (expires_at);";

const COLUMNS: &str = "path, id, experiment, run, model, blob, size, content_type, created_at";

pub(super) fn find(
    tx: &mut Tx<'_>,
    project: ProjectId,
    path: &ArtifactPath,
) -> Result<Option<Artifact>> {
    let sql = format!("SELECT {COLUMNS} FROM artifact WHERE project = $1 AND path = $2");
    tx.query_opt(&sql, &params![project, path.as_str()])?.as_ref().map(parse).transpose()
}

pub(super) fn insert(tx: &mut Tx<'_>, project: ProjectId, new: &Artifact) -> Result<()> {
    tx.execute(
        "INSERT INTO artifact
             (project, path, id, experiment, run, model, blob, size, content_type, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &params![
            project,
            new.path.as_str(),
            &new.id.as_bytes()[..],
            new.experiment,
            new.run,
            new.model.clone(),
            new.blob,
            new.size,
            &new.content_type,
            new.created_at,
        ],
    )
    .map(drop)
}

/// `false` if another was faster.
pub(super) fn delete(tx: &mut Tx<'_>, project: ProjectId, old: &Artifact) -> Result<bool> {
    let gone = tx.execute(
        "DELETE FROM artifact WHERE project = $1 AND path = $2 AND id = $3",
        &params![project, old.path.as_str(), &old.id.as_bytes()[..]],
    )?;
    Ok(gone == 1)
}

/// The first artifacts of a folder, or of the whole project.
pub(super) fn in_folder(
    tx: &mut Tx<'_>,
    project: ProjectId,
    folder: &str,
    from: &str,
    limit: usize,
) -> Result<Vec<Artifact>> {
    let (first, end) = if folder.is_empty() { span_of_all() } else { below(folder) };
    let from = if from > first.as_str() { from.to_owned() } else { first };
    let sql = format!(
        "SELECT {COLUMNS} FROM artifact WHERE project = $1 AND path >= $2 AND path < $3
         ORDER BY path LIMIT $4"
    );
    tx.query(&sql, &params![project, from, end, limit])?.iter().map(parse).collect()
}

/// The first files below a folder that come after a path in it.
pub(crate) fn files_after(
    tx: &mut Tx<'_>,
    project: ProjectId,
    folder: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<Artifact>> {
    if after.contains('\0') {
        return Err(Error::invalid("after", "(hidden)", "the `next` of the page before"));
    }
    // Paths have no control characters: nothing lies between a path and this.
    let from = if after.is_empty() { String::new() } else { format!("{folder}/{after}\u{1}") };
    in_folder(tx, project, folder, &from, limit)
}

/// No path begins with the last character there is.
fn span_of_all() -> (String, String) {
    (String::new(), char::MAX.to_string())
}

/// The first artifacts of an experiment, wherever they lie.
pub(super) fn of_experiment(
    tx: &mut Tx<'_>,
    project: ProjectId,
    experiment: ExperimentId,
    limit: usize,
) -> Result<Vec<Artifact>> {
    let sql =
        format!("SELECT {COLUMNS} FROM artifact WHERE project = $1 AND experiment = $2 LIMIT $3");
    tx.query(&sql, &params![project, experiment, limit])?.iter().map(parse).collect()
}

/// The experiments that have something in a folder.
pub(super) fn experiments_in(
    tx: &mut Tx<'_>,
    project: ProjectId,
    folder: &str,
) -> Result<Vec<ExperimentId>> {
    let (from, end) = below(folder);
    let rows = tx.query(
        "SELECT DISTINCT experiment FROM artifact WHERE project = $1 AND path >= $2 AND path < $3
         AND experiment IS NOT NULL ORDER BY experiment",
        &params![project, from, end],
    )?;
    rows.iter().map(|row| row.get("experiment")).collect()
}

/// The experiments that a file or the files in a folder belong to, and none if some belong to no
/// experiment.
pub(super) fn holders_in(
    tx: &mut Tx<'_>,
    project: ProjectId,
    path: &str,
) -> Result<Vec<Option<ExperimentId>>> {
    let (from, end) = below(path);
    let rows = tx.query(
        "SELECT DISTINCT experiment FROM artifact
         WHERE project = $1 AND (path = $4 OR (path >= $2 AND path < $3))",
        &params![project, from, end, path],
    )?;
    rows.iter().map(|row| row.get("experiment")).collect()
}

/// A file among the folders that lead to `path`, if there is one.
pub(super) fn file_above(
    tx: &mut Tx<'_>,
    project: ProjectId,
    path: &ArtifactPath,
) -> Result<Option<String>> {
    let whole = path.as_str();
    let folders: Vec<&str> = whole.match_indices('/').map(|(at, _)| &whole[..at]).collect();
    let Some(last) = folders.last() else { return Ok(None) };
    // Padded to a power of two, so that few different statements are ever prepared.
    let count = folders.len().next_power_of_two();
    let places: Vec<String> = (2..count + 2).map(|place| format!("${place}")).collect();
    let sql = format!(
        "SELECT path FROM artifact WHERE project = $1 AND path IN ({}) LIMIT 1",
        places.join(", ")
    );
    let padding = std::iter::repeat_n(last, count - folders.len());
    let paths = folders.iter().chain(padding).map(|folder| Value::from(*folder));
    let values: Vec<Value> = std::iter::once(Value::from(project)).chain(paths).collect();
    tx.query(&sql, &values)?.first().map(|row| row.get("path")).transpose()
}

/// Where a logged model's files lie, and whether it is in the bin: no more than every access to
/// one of them needs.
pub(super) fn model_home(tx: &mut Tx<'_>, model: ModelId) -> Result<Option<(String, Stage)>> {
    let sql = "SELECT artifact_uri, stage FROM logged_model WHERE id = $1";
    let row = tx.query_opt(sql, &params![model])?;
    row.map(|row| Ok((row.get("artifact_uri")?, row.get("stage")?))).transpose()
}

/// One part of a content.
#[derive(Clone, Debug)]
pub(super) struct PartRow {
    pub(super) no: u32,
    pub(super) blob: BlobId,
    pub(super) size: u64,
    /// Given to whoever sent it, and wanted back on completion.
    pub(super) tag: String,
}

pub(super) fn parts(tx: &mut Tx<'_>, artifact: Uuid) -> Result<Vec<PartRow>> {
    let rows = tx.query(
        "SELECT no, blob, size, tag FROM artifact_part WHERE artifact = $1 ORDER BY no",
        &params![&artifact.as_bytes()[..]],
    )?;
    rows.iter().map(parse_part).collect()
}

pub(super) fn part(tx: &mut Tx<'_>, artifact: Uuid, no: u32) -> Result<Option<PartRow>> {
    let row = tx.query_opt(
        "SELECT no, blob, size, tag FROM artifact_part WHERE artifact = $1 AND no = $2",
        &params![&artifact.as_bytes()[..], no],
    )?;
    row.as_ref().map(parse_part).transpose()
}

fn parse_part(row: &Row) -> Result<PartRow> {
    Ok(PartRow {
        no: row.get("no")?,
        blob: row.get("blob")?,
        size: row.get("size")?,
        tag: row.get("tag")?,
    })
}

pub(super) fn insert_part(tx: &mut Tx<'_>, artifact: Uuid, part: &PartRow) -> Result<()> {
    tx.execute(
        "INSERT INTO artifact_part (artifact, no, blob, size, tag) VALUES ($1, $2, $3, $4, $5)",
        &params![&artifact.as_bytes()[..], part.no, part.blob, part.size, &part.tag],
    )
    .map(drop)
}

pub(super) fn delete_part(tx: &mut Tx<'_>, artifact: Uuid, no: u32) -> Result<()> {
    tx.execute(
        "DELETE FROM artifact_part WHERE artifact = $1 AND no = $2",
        &params![&artifact.as_bytes()[..], no],
    )
    .map(drop)
}

fn parse(row: &Row) -> Result<Artifact> {
    Ok(Artifact {
        path: ArtifactPath::new(row.get::<String>("path")?).map_err(Error::internal)?,
        id: uuid(row, "id")?,
        experiment: row.get("experiment")?,
        run: row.get("run")?,
        model: row.get("model")?,
        blob: row.get("blob")?,
        size: row.get("size")?,
        content_type: row.get("content_type")?,
        created_at: row.get("created_at")?,
    })
}

pub(super) fn uuid(row: &Row, column: &str) -> Result<Uuid> {
    Uuid::from_slice(&row.get::<Vec<u8>>(column)?).map_err(Error::internal)
}
