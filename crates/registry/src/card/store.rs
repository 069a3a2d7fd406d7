//! Cards in the database.

use falaj_base::{Error, Result};
use falaj_store::db::{Tx, params};

use super::card::Card;
use crate::model::RegisteredId;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE model_card (
        model BLOB NOT NULL, version INTEGER NOT NULL, fields TEXT NOT NULL,
        markdown TEXT NOT NULL, revision INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL, PRIMARY KEY (model, version)) CLUSTERED;";

pub(crate) fn find(tx: &mut Tx<'_>, (model, version): (RegisteredId, i64)) -> Result<Option<Card>> {
    let row = tx.query_opt(
        "SELECT fields, markdown, revision, updated_at, updated_by FROM model_card
         WHERE model = $1 AND version = $2",
        &params![model, version],
    )?;
    row.map(|row| {
        let fields: String = row.get("fields")?;
        Ok(Card {
            fields: serde_json::from_str(&fields).map_err(Error::internal)?,
            markdown: row.get("markdown")?,
            revision: row.get("revision")?,
            updated_at: row.get("updated_at")?,
            updated_by: row.get("updated_by")?,
        })
    })
    .transpose()
}

pub(super) fn put(
    tx: &mut Tx<'_>,
    (model, version): (RegisteredId, i64),
    card: &Card,
) -> Result<()> {
    let fields = serde_json::to_string(&card.fields).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO model_card
             (model, version, fields, markdown, revision, updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (model, version) DO UPDATE SET fields = excluded.fields,
             markdown = excluded.markdown, revision = excluded.revision,
             updated_at = excluded.updated_at, updated_by = excluded.updated_by",
        &params![
            model,
            version,
            fields,
            &card.markdown,
            card.revision,
            card.updated_at,
            &card.updated_by,
        ],
    )
    .map(drop)
}
