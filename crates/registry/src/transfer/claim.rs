//! Which version of which store became which version here. It is remembered after the version, or
//! its model, was renamed or deleted: what was decided here is not undone by the next sync.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_store::db::{Tx, params};

use crate::model::{Model, RegisteredId};

/// The version 0 stands for the model itself. A row outlives what it is of.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE synced_version (
        project TEXT NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
        model BLOB NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (project, source, name, version)) CLUSTERED;";

/// What stands for the model in place of a version.
const MODEL: i64 = 0;

/// The tag by which a version that a sync registered is known to people, and to syncs from before
/// it was remembered.
pub(super) const SYNCED: &str = "falaj.synced";

/// A version of a store that is about to be registered, once.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(super) source: String,
    /// The model's name there.
    pub(super) name: String,
    pub(super) version: i64,
}

impl Claim {
    /// What the tag says.
    pub(super) fn tag(&self) -> String {
        format!("{} {}", self.source, self.version)
    }

    /// Remembers that it becomes a version of this model; refused if it has become one before.
    pub(crate) fn take(
        &self,
        tx: &mut Tx<'_>,
        project: ProjectId,
        model: &Model,
        number: i64,
    ) -> Result<()> {
        let now = tx.now();
        let new = tx.execute(
            "INSERT INTO synced_version (project, source, name, version, model, number, at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (project, source, name, version) DO NOTHING",
            &params![
                project,
                self.source.as_str(),
                self.name.as_str(),
                self.version,
                model.id,
                number,
                now
            ],
        )?;
        if new == 1 {
            return Ok(());
        }
        let text = format!("version {} of '{}' has been registered", self.version, self.name);
        Err(Error::new(&code::ALREADY_EXISTS, text).at("versions.version"))
    }

    /// Whether it has become a version here before.
    pub(super) fn is_taken(
        &self,
        tx: &mut Tx<'_>,
        project: ProjectId,
        model: RegisteredId,
    ) -> Result<bool> {
        let sql = "SELECT number FROM synced_version
                   WHERE project = $1 AND source = $2 AND name = $3 AND version = $4";
        let of = params![project, self.source.as_str(), self.name.as_str(), self.version];
        if tx.query_opt(sql, &of)?.is_some() {
            return Ok(true);
        }
        let sql = "SELECT version FROM model_version_tag
                   WHERE model = $1 AND key = $2 AND value = $3 LIMIT 1";
        Ok(tx.query_opt(sql, &params![model, SYNCED, self.tag()])?.is_some())
    }
}

/// Remembers which model here a store's model is; the first one stays.
pub(super) fn note_model(
    tx: &mut Tx<'_>,
    project: ProjectId,
    (source, name): (&str, &str),
    model: RegisteredId,
) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO synced_version (project, source, name, version, model, number, at)
         VALUES ($1, $2, $3, $4, $5, 0, $6)
         ON CONFLICT (project, source, name, version) DO NOTHING",
        &params![project, source, name, MODEL, model, now],
    )
    .map(drop)
}

/// Where a store's model is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has never come.
    New,
    /// It is here, by this name now.
    Here(RegisteredId, String),
    /// It came, and was deleted.
    Gone,
}

pub(super) fn standing(
    tx: &mut Tx<'_>,
    project: ProjectId,
    (source, name): (&str, &str),
) -> Result<Standing> {
    let sql = "SELECT model FROM synced_version
               WHERE project = $1 AND source = $2 AND name = $3 AND version = $4";
    let Some(row) = tx.query_opt(sql, &params![project, source, name, MODEL])? else {
        return Ok(Standing::New);
    };
    let model: RegisteredId = row.get("model")?;
    let sql = "SELECT name FROM registered_model WHERE project = $1 AND id = $2";
    match tx.query_opt(sql, &params![project, model])? {
        Some(row) => Ok(Standing::Here(model, row.get("name")?)),
        None => Ok(Standing::Gone),
    }
}
