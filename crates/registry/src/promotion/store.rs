//! Rules in the database: one row for each project that has some.

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::{Tx, params};

use super::policy::Policy;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE model_policy (project TEXT PRIMARY KEY, rules TEXT NOT NULL);";

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId) -> Result<Option<Policy>> {
    let sql = "SELECT rules FROM model_policy WHERE project = $1";
    let Some(row) = tx.query_opt(sql, &params![project])? else { return Ok(None) };
    serde_json::from_str(&row.get::<String>("rules")?).map(Some).map_err(Error::internal)
}

pub(super) fn put(tx: &mut Tx<'_>, project: ProjectId, policy: &Policy) -> Result<()> {
    let rules = serde_json::to_string(policy).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO model_policy (project, rules) VALUES ($1, $2)
         ON CONFLICT (project) DO UPDATE SET rules = excluded.rules",
        &params![project, rules],
    )
    .map(drop)
}
