//! Aliases in the database.

use falaj_base::Result;
use falaj_store::db::{Tx, params};

use crate::model::RegisteredId;

/// The version an alias points at.
pub(crate) fn find(tx: &mut Tx<'_>, model: RegisteredId, alias: &str) -> Result<Option<i64>> {
    let sql = "SELECT version FROM model_alias WHERE model = $1 AND alias = $2";
    tx.query_opt(sql, &params![model, alias])?.map(|row| row.get("version")).transpose()
}

pub(crate) fn set(tx: &mut Tx<'_>, model: RegisteredId, alias: &str, version: i64) -> Result<()> {
    tx.execute(
        "INSERT INTO model_alias (model, alias, version) VALUES ($1, $2, $3)
         ON CONFLICT (model, alias) DO UPDATE SET version = excluded.version",
        &params![model, alias, version],
    )
    .map(drop)
}

pub(super) fn delete(tx: &mut Tx<'_>, model: RegisteredId, alias: &str) -> Result<()> {
    let sql = "DELETE FROM model_alias WHERE model = $1 AND alias = $2";
    tx.execute(sql, &params![model, alias]).map(drop)
}
