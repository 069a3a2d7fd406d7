//! Models from elsewhere in the database.

use falaj_base::Result;
use falaj_store::db::{Tx, params};

use crate::model::{Model, store as models};
use crate::version::{Version, store as versions};

/// Brings what is said of a model itself up to date. Numbers that were given stay given.
pub(super) fn update_model(tx: &mut Tx<'_>, model: &Model) -> Result<()> {
    tx.execute(
        "UPDATE registered_model SET description = $2, updated_at = $3,
             last_version = CASE WHEN last_version < $4 THEN $4 ELSE last_version END
         WHERE id = $1",
        &params![model.id, &model.description, model.updated_at, model.last_version],
    )?;
    model.tags.iter().try_for_each(|(key, value)| models::set_tag(tx, model.id, key, value))
}

/// Brings a version that is here up to date; where it comes from and its stage stay.
pub(super) fn update_version(tx: &mut Tx<'_>, version: &Version) -> Result<()> {
    let of = (version.model, version.number);
    versions::describe(tx, of, version.description.as_deref(), version.updated_at)?;
    version.tags.iter().try_for_each(|(key, value)| versions::set_tag(tx, of, key, value))
}
