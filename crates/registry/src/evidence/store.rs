//! The proof in the database.

use falaj_base::{Error, ProjectId, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};
use falaj_tracking::artifact::{ArtifactPath, files_below};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::record::{Evidence, State};
use crate::model::RegisteredId;

/// `pins` names the files that were there at registration; without pins whatever is there counts.
/// `due_at` is when the worker looks at it; nothing is due that needs no work. `sealed` is a
/// private key under the tenant's key.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE model_evidence (
        model BLOB NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, pins TEXT,
        run TEXT, files TEXT, digest TEXT, signing_key TEXT, signature TEXT, scan TEXT,
        declared TEXT, attempts INTEGER NOT NULL, due_at INTEGER, made_at INTEGER,
        PRIMARY KEY (model, version)) CLUSTERED;
    CREATE INDEX model_evidence_due ON model_evidence (due_at);
    CREATE TABLE model_signing_key (
        tenant TEXT NOT NULL, id TEXT NOT NULL, public_key TEXT NOT NULL, sealed BLOB NOT NULL,
        created_at INTEGER NOT NULL, PRIMARY KEY (tenant, id));
    INSERT INTO model_evidence (model, version, state, attempts, due_at)
        SELECT model, version, 'pending', 0, 0 FROM model_version WHERE files IS NOT NULL;";

const COLUMNS: &str = "state, reason, pins, run, files, digest, signing_key, signature, scan,
    declared, attempts, made_at";

/// A file that was there at registration: its path and which upload it was.
pub(super) type Pin = (String, String);

/// A row: the proof, and what making it needs.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) evidence: Evidence,
    pub(super) pins: Option<Vec<Pin>>,
    pub(super) attempts: i64,
}

impl Kept {
    /// Of a version that nothing is kept of.
    pub(super) fn nothing() -> Self {
        Self { evidence: Evidence::new(State::Pending), pins: None, attempts: 0 }
    }
}

/// Pins the files of a new version, as part of its registration. `most` files are pinned; a model
/// with more is not signed at all.
pub(crate) fn pin(
    tx: &mut Tx<'_>,
    (project, folder): (ProjectId, &str),
    (model, version): (RegisteredId, i64),
    run: Option<&str>,
    most: usize,
) -> Result<()> {
    let folder = ArtifactPath::new(folder)?;
    let files = files_below(tx, project, &folder, most + 1)?;
    let pins: Vec<Pin> = files
        .iter()
        .map(|file| (below(&folder, file.path.as_str()), file.id.simple().to_string()))
        .collect();
    // A folder that is still empty is filled later: whatever is there then counts.
    let pins = (!pins.is_empty() && pins.len() <= most).then(|| json(&pins)).transpose()?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO model_evidence (model, version, state, pins, run, attempts, due_at)
         VALUES ($1, $2, $3, $4, $5, 0, $6)",
        &params![model, version, State::Pending, pins, run, now],
    )
    .map(drop)
}

/// A path as it reads from the version's root.
pub(super) fn below(folder: &ArtifactPath, path: &str) -> String {
    let inside = path.strip_prefix(folder.as_str()).unwrap_or(path);
    inside.trim_start_matches('/').to_owned()
}

pub(super) fn find(tx: &mut Tx<'_>, (model, version): (RegisteredId, i64)) -> Result<Option<Kept>> {
    let sql = format!("SELECT {COLUMNS} FROM model_evidence WHERE model = $1 AND version = $2");
    tx.query_opt(&sql, &params![model, version])?.as_ref().map(read).transpose()
}

/// The run that stands behind a version.
pub(crate) fn run_of(
    tx: &mut Tx<'_>,
    (model, version): (RegisteredId, i64),
) -> Result<Option<String>> {
    let sql = "SELECT run FROM model_evidence WHERE model = $1 AND version = $2";
    let row = tx.query_opt(sql, &params![model, version])?;
    Ok(row.map(|row| row.get::<Option<String>>("run")).transpose()?.flatten())
}

/// The digest over a version's files, if it is signed.
pub(crate) fn digest(
    tx: &mut Tx<'_>,
    (model, version): (RegisteredId, i64),
) -> Result<Option<(State, Option<String>)>> {
    let sql = "SELECT state, digest FROM model_evidence WHERE model = $1 AND version = $2";
    let row = tx.query_opt(sql, &params![model, version])?;
    row.map(|row| Ok((row.get("state")?, row.get("digest")?))).transpose()
}

/// Writes what was made, unless another was faster: then it says so.
pub(super) fn settle(
    tx: &mut Tx<'_>,
    (model, version): (RegisteredId, i64),
    made: &Evidence,
) -> Result<bool> {
    let now = tx.now();
    let files: Vec<(&str, &str, u64, &str)> = made
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.sha256.as_str(), file.size, file.artifact.as_str()))
        .collect();
    let changed = tx.execute(
        "UPDATE model_evidence SET state = $3, reason = $4, files = $5, digest = $6,
             signing_key = $7, signature = $8, scan = $9, declared = $10, due_at = NULL,
             made_at = $11
         WHERE model = $1 AND version = $2 AND state IN ('pending', 'empty')",
        &params![
            model,
            version,
            made.state,
            made.reason.clone(),
            json(&files)?,
            made.digest.clone(),
            made.key.clone(),
            made.signature.clone(),
            made.scan.as_ref().map(json).transpose()?,
            json(&made.declared)?,
            now,
        ],
    )?;
    Ok(changed == 1)
}

/// Forgets the proof and the pins, so that it is made anew of what is there now.
pub(super) fn reset(tx: &mut Tx<'_>, (model, version): (RegisteredId, i64)) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO model_evidence (model, version, state, attempts, due_at)
         VALUES ($1, $2, $3, 0, $4)
         ON CONFLICT (model, version) DO UPDATE SET state = excluded.state, reason = NULL,
             pins = NULL, digest = NULL, attempts = 0, due_at = excluded.due_at",
        &params![model, version, State::Pending, now],
    )
    .map(drop)
}

/// Notes that making it failed, and when to try again.
pub(super) fn postpone(
    tx: &mut Tx<'_>,
    (model, version): (RegisteredId, i64),
    reason: &str,
    until: Timestamp,
) -> Result<()> {
    tx.execute(
        "UPDATE model_evidence SET attempts = attempts + 1, reason = $3, due_at = $4
         WHERE model = $1 AND version = $2 AND state = 'pending'",
        &params![model, version, reason, until],
    )
    .map(drop)
}

/// Versions whose proof is due: their project, name and number.
pub(super) fn due(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<(ProjectId, String, i64)>> {
    let now = tx.now();
    let rows = tx.query(
        "SELECT m.project, m.name, e.version FROM model_evidence e
         JOIN registered_model m ON m.id = e.model
         WHERE e.due_at <= $1 ORDER BY e.due_at LIMIT $2",
        &params![now, limit],
    )?;
    rows.iter()
        .map(|row| Ok((row.get("project")?, row.get("name")?, row.get("version")?)))
        .collect()
}

fn read(row: &Row) -> Result<Kept> {
    let files: Option<String> = row.get("files")?;
    let files: Vec<(String, String, u64, String)> = files.map_or(Ok(Vec::new()), |t| parse(&t))?;
    let file = |(path, sha256, size, artifact)| super::SignedFile { path, sha256, size, artifact };
    let declared: Option<String> = row.get("declared")?;
    Ok(Kept {
        evidence: Evidence {
            state: row.get("state")?,
            reason: row.get("reason")?,
            files: files.into_iter().map(file).collect(),
            digest: row.get("digest")?,
            key: row.get("signing_key")?,
            signature: row.get("signature")?,
            scan: row.get::<Option<String>>("scan")?.map(|text| parse(&text)).transpose()?,
            declared: declared.map_or(Ok(super::record::Declared::default()), |t| parse(&t))?,
            run: row.get("run")?,
            made_at: row.get("made_at")?,
        },
        pins: row.get::<Option<String>>("pins")?.map(|text| parse(&text)).transpose()?,
        attempts: row.get("attempts")?,
    })
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(Error::internal)
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(Error::internal)
}
