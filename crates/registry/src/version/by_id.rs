//! Versions by their model's own id, which stays when the model is renamed.

use falaj_base::{Ctx, Error, Result};
use falaj_governance::tenancy::Project;
use falaj_store::db::{Tx, params};

use super::version::Version;
use crate::Registry;
use crate::model::RegisteredId;

impl Registry {
    /// A version that the caller may see, whatever its model is called now.
    pub async fn version_of(
        &self,
        ctx: &Ctx,
        project: &Project,
        model: RegisteredId,
        number: i64,
    ) -> Result<Version> {
        let id = project.id;
        let named = move |tx: &mut Tx<'_>| {
            let row = tx.query_opt(
                "SELECT name FROM registered_model WHERE id = $1 AND project = $2",
                &params![model, id],
            )?;
            row.map(|row| row.get::<String>("name")).transpose()
        };
        let name = self.db().read(named).await?;
        let name = name.ok_or_else(|| Error::not_found("registered-model", "(deleted)"))?;
        self.version(ctx, project, &name, number).await
    }
}
