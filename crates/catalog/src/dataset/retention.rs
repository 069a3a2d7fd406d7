//! Removing what is no longer kept: versions that no rule keeps, files that no version has, datasets
//! that were deleted long enough ago. What they held is given back to the object store, which removes
//! the bytes.
//!
//! Stop it anywhere and run it again: each step is a transaction of its own.

use std::collections::HashSet;
use std::time::Duration;

use falaj_base::{Ctx, Result, Timestamp};
use falaj_store::db::Tx;
use falaj_store::objects::Objects;
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use serde_json::json;

use super::dataset::{Dataset, DatasetId, Keep};
use super::store;
use crate::version::store as versions;
use crate::version::{FILE, VERSION, Version, remove};
use crate::{DATASET_DELETE, Datasets};

const NAME: &str = "dataset-retention";
const EVERY: Duration = Duration::from_mins(10);
/// How many are looked at in one transaction.
const AT_ONCE: usize = 100;

pub(crate) fn sweeper(datasets: &Datasets) -> Worker {
    let datasets = datasets.clone();
    Worker::new(NAME, EVERY, move || {
        let datasets = datasets.clone();
        async move { datasets.sweep().await }
    })
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.micros().saturating_sub(age))
}

impl Datasets {
    /// Removes everything that is due now.
    pub async fn sweep(&self) -> Result<()> {
        self.sweep_versions().await?;
        let (deleted, stored) = {
            let (config, now) = (self.config(), self.db().now());
            (before(now, config.deleted_keep.get()), before(now, config.file_grace.get()))
        };
        loop {
            let due = self.db().read(move |tx| store::deleted_before(tx, deleted, AT_ONCE)).await?;
            let more = due.len() == AT_ONCE;
            for id in due {
                self.db()
                    .write(move |tx| {
                        store::lock(tx, &id)?;
                        purge(tx, &id)
                    })
                    .await?;
            }
            if !more {
                break;
            }
        }
        loop {
            let due =
                self.db().read(move |tx| versions::with_loose_files(tx, stored, AT_ONCE)).await?;
            let more = due.len() == AT_ONCE;
            for id in due {
                while self
                    .db()
                    .write({
                        let id = id.clone();
                        move |tx| drop_files(tx, &id, stored)
                    })
                    .await?
                {}
            }
            if !more {
                return Ok(());
            }
        }
    }

    async fn sweep_versions(&self) -> Result<()> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let page = self.db().read(move |tx| store::after(tx, &from, AT_ONCE)).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = last.id.to_string();
            for (dataset, project) in page {
                if dataset.about.keep.ends() {
                    let ctx = Ctx::system(NAME);
                    let project = self.tenancy().project_by_id(&ctx, project).await?;
                    let of = dataset.resource(&project);
                    ctx.authorize(&DATASET_DELETE, &of).await?;
                    self.db().write(move |tx| prune(tx, &ctx, &dataset, &of)).await?;
                }
            }
        }
    }
}

/// Which versions no rule keeps. They come the newest first.
fn due(
    kept: &[Version],
    tagged: &HashSet<i64>,
    keep: Keep,
    now: Timestamp,
) -> Vec<(i64, falaj_base::BlobId)> {
    let few = keep.versions.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let gone = kept.iter().enumerate().skip(1).filter(|(place, version)| {
        let by_count = few.is_some_and(|few| *place < few);
        let by_age = keep.age.is_some_and(|age| now.since(version.created_at) < age.get());
        !by_count && !by_age && !tagged.contains(&version.version)
    });
    gone.map(|(_, version)| (version.version, version.statistics)).collect()
}

/// Removes the versions of a dataset that no rule keeps.
fn prune(tx: &mut Tx<'_>, ctx: &Ctx, dataset: &Dataset, of: &falaj_base::Resource) -> Result<()> {
    store::lock(tx, &dataset.id)?;
    let tagged = versions::tags(tx, &dataset.id)?.into_iter().map(|tag| tag.version).collect();
    let kept = versions::kept(tx, &dataset.id)?;
    let now = tx.now();
    let due = due(&kept, &tagged, dataset.about.keep, now);
    if due.is_empty() {
        return Ok(());
    }
    for (version, statistics) in &due {
        remove(tx, dataset, *version, *statistics)?;
    }
    let numbers: Vec<i64> = due.iter().map(|(version, _)| *version).collect();
    let told = json!({ "dataset": dataset.name, "versions": numbers });
    let change = Change::new(&DATASET_DELETE, of)
        .event("dataset.pruned", &told)
        .detail("versions", numbers.len());
    tx.record(ctx, change)
}

/// Removes some files that no version has; tells whether there may be more.
fn drop_files(tx: &mut Tx<'_>, id: &DatasetId, stored: Timestamp) -> Result<bool> {
    store::lock(tx, id)?;
    let loose = versions::loose_files(tx, id, stored, AT_ONCE)?;
    for file in &loose {
        give_back(tx, id, file)?;
    }
    Ok(loose.len() == AT_ONCE)
}

/// Removes a file that no version has. The dataset's lock is held.
pub(crate) fn give_back(
    tx: &mut Tx<'_>,
    id: &DatasetId,
    file: &crate::version::VersionFile,
) -> Result<()> {
    let owner = format!("{id}/{}", file.sha256);
    Objects::detach(tx, file.blob, FILE, &owner)?;
    Objects::detach(tx, file.statistics, FILE, &owner)?;
    versions::forget_file(tx, id, &file.sha256)
}

/// Removes everything of a deleted dataset. Its lock is held.
pub(super) fn purge(tx: &mut Tx<'_>, id: &DatasetId) -> Result<()> {
    for version in versions::kept(tx, id)? {
        let owner = format!("{id}/{}", version.version);
        Objects::detach(tx, version.statistics, VERSION, &owner)?;
    }
    versions::forget_all(tx, id)?;
    loop {
        let files = versions::loose_files(tx, id, Timestamp::from_micros(i64::MAX), AT_ONCE)?;
        if files.is_empty() {
            return store::forget(tx, id);
        }
        for file in &files {
            give_back(tx, id, file)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::{BlobId, HumanDuration};

    use super::*;
    use crate::version::Verb;

    fn version(number: i64, day: i64) -> Version {
        Version {
            version: number,
            made_by: Verb::Put,
            digest: String::new(),
            parent: None,
            rows: 0,
            size: 0,
            files: 1,
            columns: Vec::new(),
            tags: Vec::new(),
            origin: None,
            message: None,
            created_at: Timestamp::from_micros(day * 86_400_000_000),
            created_by: String::new(),
            removed_at: None,
            statistics: BlobId::new(),
        }
    }

    #[test]
    fn the_latest_the_tagged_and_what_a_rule_keeps_stay() {
        let kept: Vec<_> = (1..=6).rev().map(|day| version(day, day)).collect();
        let now = Timestamp::from_micros(7 * 86_400_000_000);
        let days = |days| Some(HumanDuration::from_days(days));
        for (versions, age, tags, gone) in [
            (Some(2), None, vec![], vec![4, 3, 2, 1]),
            (Some(1), None, vec![3], vec![5, 4, 2, 1]),
            (None, days(3), vec![], vec![4, 3, 2, 1]),
            (Some(2), days(4), vec![], vec![3, 2, 1]),
            (Some(10), None, vec![], vec![]),
            (None, days(1), vec![1], vec![5, 4, 3, 2]),
        ] {
            let found = due(&kept, &tags.into_iter().collect(), Keep { versions, age }, now);
            let found: Vec<_> = found.into_iter().map(|(number, _)| number).collect();
            assert_eq!(found, gone, "{versions:?} {age:?}");
        }
    }
}
