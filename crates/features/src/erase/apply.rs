//! Erasing in an online store.

use std::sync::Arc;

use falaj_base::{Result, Timestamp};
use falaj_online::Online;
use falaj_store::db::Tx;

use super::erasure::Erasure;
use super::{store, target};
use crate::Features;
use crate::online::Shelf;

impl Shelf {
    /// Erases the rows of an entity in the store; tells how many.
    pub(crate) async fn erase(&self, store: &Online, erasure: &Erasure) -> Result<u64> {
        let Some(keys) = erasure.keys.clone() else { return Ok(0) };
        let (project, entity) = (erasure.project, erasure.entity.clone());
        let found = move |tx: &mut Tx<'_>| target::targets(tx, project, &entity, &keys);
        let (mut gone, at) = (0, erasure.at.micros());
        for target in self.db().read(found).await? {
            let shape: Arc<_> = self.shape(&target.view)?;
            let pattern = shape.pattern(&target.values())?;
            gone += store.erase(&pattern, at).await?;
            store.erase(&pattern.beside(), at).await?;
        }
        Ok(gone)
    }
}

impl Features {
    /// Erases again what was erased since a time, for those who may have brought it back.
    pub(crate) async fn erase_again(
        &self,
        store: &Online,
        project: falaj_base::ProjectId,
        since: Timestamp,
    ) -> Result<()> {
        let found = move |tx: &mut Tx<'_>| store::since(tx, project, since);
        for erasure in self.db().read(found).await? {
            self.shelf().erase(store, &erasure).await?;
        }
        Ok(())
    }
}
