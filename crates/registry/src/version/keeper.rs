//! What versions refer to among the project's files: it is not purged while they are there.

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Tx, params};
use falaj_tracking::purge::{Keeper, Kept};

/// The versions of all registered models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions;

impl Keeper for Versions {
    fn kept(&self, tx: &mut Tx<'_>, project: ProjectId) -> Result<Vec<Kept>> {
        let mut all = Vec::new();
        tx.scan(
            "SELECT m.name, v.version, v.files FROM model_version v
             JOIN registered_model m ON m.id = v.model
             WHERE m.project = $1 AND v.files IS NOT NULL ORDER BY m.name, v.version",
            &params![project],
            |row| {
                let (name, version) = (row.get::<String>("name")?, row.get::<i64>("version")?);
                let by = format!("version {version} of the registered model {name:?}");
                all.push(Kept { files: row.get("files")?, by });
                Ok(())
            },
        )?;
        Ok(all)
    }
}
