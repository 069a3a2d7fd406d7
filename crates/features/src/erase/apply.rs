//! Erasing in an online store.

use std::collections::VecDeque;
use std::sync::Arc;

use falaj_base::{Result, Timestamp};
use falaj_online::Online;
use falaj_store::db::Tx;

use super::erasure::{Erasure, ErasureId};
use super::{store, target};
use crate::Features;
use crate::online::Shelf;

/// The latest erasures that are remembered.
const REMEMBERED: usize = 256;

/// How many rows erasures have taken out of the store. Both who was asked and who keeps the store up with
/// the log erase; whoever comes second finds nothing.
#[derive(Debug, Default)]
pub(crate) struct Erased(VecDeque<(ErasureId, u64)>);

impl Erased {
    /// Adds to what is known of one; tells how many it took out in all.
    fn add(&mut self, id: ErasureId, gone: u64) -> u64 {
        if let Some((_, all)) = self.0.iter_mut().find(|(known, _)| *known == id) {
            *all += gone;
            return *all;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((id, gone));
        gone
    }
}

impl Shelf {
    /// Erases the rows of an entity in the store; tells how many were, now and by this server before.
    pub(crate) async fn erase(&self, store: &Online, erasure: &Erasure) -> Result<u64> {
        let Some(keys) = erasure.keys.clone() else { return Ok(0) };
        // Held until it is counted: who comes second is to hear what the first one did.
        let mut erased = self.erased().await;
        let (project, entity) = (erasure.project, erasure.entity.clone());
        let found = move |tx: &mut Tx<'_>| target::targets(tx, project, &entity, &keys);
        let (mut gone, at) = (0, erasure.at.micros());
        for target in self.db().read(found).await? {
            let shape: Arc<_> = self.shape(&target.view)?;
            let pattern = shape.pattern(&target.values())?;
            gone += store.erase(&pattern, at).await?;
            store.erase(&pattern.beside(), at).await?;
        }
        Ok(erased.add(erasure.id, gone))
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
