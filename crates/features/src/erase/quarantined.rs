//! What was put aside of streams, and may be an entity's.
//!
//! A record that is no row may still tell whose it is. One that tells another entity stays; one of the
//! entity, and one that does not tell, lose their content and the reason, which may quote it. That there
//! was a bad record at the offset stays known.

use std::time::Duration;

use falaj_base::Result;
use falaj_store::db::Tx;

use super::erasure::Erasure;
use super::target::Target;
use crate::Features;
use crate::definition::store as definitions;
use crate::name::FeatureName;
use crate::source::blocking;
use crate::stream::{Kept, Keys, Whose, kept_records, overwrite};

/// How far the clocks of two servers may be apart: what one of them put aside may be of later.
const APART: Duration = Duration::from_mins(5);
/// How many are looked at at a time.
const AT_ONCE: usize = 500;

impl Features {
    /// Overwrites records that were put aside by now and may be the entity's; tells how many.
    pub(super) async fn erase_quarantined(
        &self,
        erasure: &Erasure,
        targets: &[Target],
    ) -> Result<u64> {
        let mut sources: Vec<(FeatureName, Vec<Keys>)> = Vec::new();
        for target in targets {
            let versions = target.versions.clone();
            let read = move |tx: &mut Tx<'_>| {
                let found = versions.iter().map(|version| definitions::by_id(tx, *version));
                found.collect::<Result<Vec<_>>>()
            };
            for (_, definition) in self.db().read(read).await?.into_iter().flatten() {
                let Some((source, keys)) = Keys::of_view(&definition, &target.keys) else {
                    continue;
                };
                match sources.iter_mut().find(|(name, _)| *name == source) {
                    Some((_, all)) if all.contains(&keys) => {}
                    Some((_, all)) => all.push(keys),
                    None => sources.push((source, vec![keys])),
                }
            }
        }
        let (mut gone, project, at) = (0, erasure.project, self.db().now() + APART);
        for (source, keys) in sources {
            let keys = std::sync::Arc::new(keys);
            let mut after = String::new();
            loop {
                let (of, from) = (source.clone(), after.clone());
                let page =
                    move |tx: &mut Tx<'_>| kept_records(tx, project, &of, at, (&from, AT_ONCE));
                let page: Vec<Kept> = self.db().read(page).await?;
                let Some(last) = page.last().map(|kept| kept.id.clone()) else { break };
                after = last;
                let keys = keys.clone();
                let theirs = blocking(move || {
                    let theirs = page.into_iter().filter(|kept| !is_others(&keys, kept));
                    Ok(theirs.map(|kept| kept.id).collect::<Vec<_>>())
                });
                let theirs = theirs.await?;
                if !theirs.is_empty() {
                    gone += self.db().write(move |tx| overwrite(tx, &theirs)).await?;
                }
            }
        }
        Ok(gone)
    }
}

/// Whether a record is another's by all that views of its source say and said. One by which it does not
/// tell may be the one that it was written for.
fn is_others(keys: &[Keys], kept: &Kept) -> bool {
    keys.iter().all(|keys| keys.whose(kept) == Whose::Others)
}
