//! Files that another domain made and has to take away: datasets that have one go on without it.
//!
//! Must hold:
//! - A version never changes. One that has the file is removed, as if somebody had removed it: it stays
//!   in the history with its digest, and neither its rows nor its statistics can be read.
//! - If the latest version is among them, another follows that has a file in the place of the one that
//!   went. It is known by the digest of what it holds, as every version is.
//! - Datasets that were deleted and could be restored lose the file as well.

use falaj_base::{BlobId, Ctx, Error, Result, code, hex};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Objects, Staged};
use falaj_store::record::Change;
use serde_json::json;

use crate::dataset::{Dataset, give_back, store as datasets};
use crate::name::DatasetName;
use crate::statistics::Profile;
use crate::version::{
    ColumnInfo, Commit, FILE, Kept, Manifest, Origin, Verb, VersionFile, Which, remove, store,
};
use crate::{DATASET_DELETE, DATASET_WRITE, Datasets, blocking};

/// A file that is about to be replaced in all datasets of a project.
#[derive(Debug)]
pub struct Replacement {
    project: Project,
    /// The SHA-256 of the file that goes.
    old: String,
    /// The file that comes, but for its blobs.
    columns: Vec<ColumnInfo>,
    rows: u64,
    size: u64,
    sha256: String,
    held: Vec<Held>,
    origin: Origin,
}

/// A dataset that has the file.
#[derive(Debug)]
struct Held {
    dataset: Dataset,
    next: Option<Next>,
}

/// What follows its latest version.
#[derive(Debug)]
struct Next {
    after: i64,
    /// Of the file that comes.
    statistics: Staged,
    /// Of all files; those of the one if it is the only one.
    sums: Option<Staged>,
}

impl Replacement {
    /// The blobs that were stored for it, to be discarded if it comes to nothing.
    #[must_use]
    pub fn staged(&self) -> Vec<BlobId> {
        let nexts = self.held.iter().filter_map(|held| held.next.as_ref());
        let blobs = nexts.flat_map(|next| {
            std::iter::once(next.statistics.blob).chain(next.sums.as_ref().map(|it| it.blob))
        });
        blobs.collect()
    }

    /// Takes the file away and puts the other in its place, as part of the caller's transaction, in
    /// which the blob of the other is visible. Tells which datasets have another version now. Refused
    /// with `changed` if a dataset has become another meanwhile: then it is prepared anew.
    pub fn write(self, tx: &mut Tx<'_>, ctx: &Ctx, blob: BlobId) -> Result<Vec<DatasetName>> {
        // From here on no dataset gets the file that did not have it.
        datasets::lock_files(tx, self.project.id, &[&self.old, &self.sha256])?;
        let found = datasets::with_file(tx, self.project.id, &self.old)?;
        let found = found.iter().map(|(dataset, _)| &dataset.id);
        if !found.eq(self.held.iter().map(|held| &held.dataset.id)) {
            return Err(changed());
        }
        let mut names = Vec::new();
        for held in &self.held {
            datasets::lock(tx, &held.dataset.id)?;
            let files = self.latest_files(tx, held)?;
            self.take_away(tx, ctx, &held.dataset)?;
            if let (Some(next), Some(files)) = (&held.next, files) {
                self.follow(tx, ctx, (&held.dataset, next), files, blob)?;
                names.push(held.dataset.name.clone());
            }
        }
        Ok(names)
    }

    /// The files of the latest version, if it has the one that goes.
    fn latest_files(&self, tx: &mut Tx<'_>, held: &Held) -> Result<Option<Vec<VersionFile>>> {
        let id = &held.dataset.id;
        let Some(latest) = store::find(tx, id, &Which::Latest)? else { return Ok(None) };
        let files = store::files_of(tx, id, latest.version)?;
        let has = files.iter().any(|file| file.sha256 == self.old);
        let live = datasets::find(tx, self.project.id, &held.dataset.name)?;
        let live = live.is_some_and(|it| it.id == *id);
        let expected = held.next.as_ref().map(|next| next.after);
        if (has && live).then_some(latest.version) != expected {
            return Err(changed());
        }
        Ok(has.then_some(files))
    }

    /// Removes every version that has the file, and the file.
    fn take_away(&self, tx: &mut Tx<'_>, ctx: &Ctx, dataset: &Dataset) -> Result<()> {
        let id = &dataset.id;
        let mut numbers = Vec::new();
        for version in store::with_file(tx, id, &self.old)? {
            if remove(tx, dataset, version.version, version.statistics)? {
                numbers.push(version.version);
            }
        }
        let known = store::known_files(tx, id, std::slice::from_ref(&self.old))?;
        for file in known.values() {
            give_back(tx, id, file)?;
        }
        let told = json!({ "dataset": dataset.name, "versions": numbers, "file": self.old,
            "origin": self.origin });
        let resource = dataset.resource(&self.project);
        let change = Change::new(&DATASET_DELETE, &resource)
            .event("dataset.erased", &told)
            .before(&self.old)
            .detail("versions", numbers.len());
        tx.record(ctx, change)
    }

    /// Makes the version that follows.
    fn follow(
        &self,
        tx: &mut Tx<'_>,
        ctx: &Ctx,
        (dataset, next): (&Dataset, &Next),
        mut files: Vec<VersionFile>,
        blob: BlobId,
    ) -> Result<()> {
        let owner = format!("{}/{}", dataset.id, self.sha256);
        let known =
            store::known_files(tx, &dataset.id, std::slice::from_ref(&self.sha256))?.into_values();
        let new = if let Some(known) = known.last() {
            known
        } else {
            Objects::share(tx, self.project.tenant_id, blob, FILE, &owner)?;
            VersionFile {
                sha256: self.sha256.clone(),
                rows: self.rows,
                size: self.size,
                columns: self.columns.clone(),
                blob,
                statistics: Objects::attach(tx, &next.statistics, FILE, &owner)?,
            }
        };
        store::insert_file(tx, &dataset.id, &new)?;
        let statistics = match &next.sums {
            Some(sums) => Kept::Stored(sums.clone()),
            None => Kept::Shared(new.statistics),
        };
        for file in files.iter_mut().filter(|file| file.sha256 == self.old) {
            *file = new.clone();
        }
        // A file stands in a version once.
        let mut seen = std::collections::HashSet::new();
        files.retain(|file| seen.insert(file.sha256.clone()));
        let columns = files.first().map(|file| file.columns.clone()).unwrap_or_default();
        let commit = Commit {
            project: self.project.clone(),
            dataset: dataset.clone(),
            parent: next.after,
            anywhere: false,
            verb: Verb::Erase,
            manifest: Manifest::new(columns, files),
            statistics,
            origin: Some(self.origin.clone()),
            message: None,
            author: None,
            // What has to go is no growth that somebody asks for.
            max_versions: usize::MAX,
        };
        commit.write(tx, ctx, &dataset.resource(&self.project)).map(drop)
    }
}

fn changed() -> Error {
    Error::new(&code::CHANGED, "a dataset was changed while a file of it was replaced")
}

impl Datasets {
    /// Prepares to replace a file, by its SHA-256, by another that was stored and is not visible yet.
    /// Whoever asks answers for it: the files are his, and so is the reason.
    pub async fn replacement(
        &self,
        ctx: &Ctx,
        project: &Project,
        old: &str,
        new: &Staged,
        origin: Origin,
    ) -> Result<Replacement> {
        let (id, sha256) = (project.id, old.to_owned());
        let find = move |tx: &mut Tx<'_>| {
            let mut found = Vec::new();
            for (dataset, live) in datasets::with_file(tx, id, &sha256)? {
                let latest = store::find(tx, &dataset.id, &Which::Latest)?;
                let files = match &latest {
                    Some(latest) if live => store::files_of(tx, &dataset.id, latest.version)?,
                    _ => Vec::new(),
                };
                let has = files.iter().any(|file| file.sha256 == sha256);
                let latest = latest.filter(|_| has).map(|latest| (latest.version, files));
                found.push((dataset, latest));
            }
            Ok(found)
        };
        let found = self.db().read(find).await?;
        let read = if found.iter().any(|(_, latest)| latest.is_some()) {
            Some(self.looked_through(project, new).await?)
        } else {
            None
        };
        let profile = read.as_ref().map(|(_, profile)| profile);
        let (columns, rows) = read.as_ref().map_or_else(
            || (Vec::new(), 0),
            |(columns, profile): &(Vec<ColumnInfo>, Profile)| (columns.clone(), profile.rows()),
        );
        let mut replacement = Replacement {
            project: project.clone(),
            old: old.to_owned(),
            columns,
            rows,
            size: new.size,
            sha256: hex(&new.sha256),
            held: Vec::new(),
            origin,
        };
        for (dataset, latest) in found {
            match self.following(ctx, project, (old, profile), &dataset, latest).await {
                Ok(next) => replacement.held.push(Held { dataset, next }),
                Err(error) => {
                    self.give_up(replacement.staged()).await;
                    return Err(error);
                }
            }
        }
        Ok(replacement)
    }

    /// What follows the latest version of a dataset, if that has the file.
    async fn following(
        &self,
        ctx: &Ctx,
        project: &Project,
        (old, profile): (&str, Option<&Profile>),
        dataset: &Dataset,
        latest: Option<(i64, Vec<VersionFile>)>,
    ) -> Result<Option<Next>> {
        let resource = dataset.resource(project);
        ctx.authorize(&DATASET_DELETE, &resource).await?;
        ctx.authorize(&DATASET_WRITE, &resource).await?;
        let Some((after, files)) = latest else { return Ok(None) };
        let profile =
            profile.ok_or_else(|| Error::internal("a file that was not looked through"))?;
        let statistics = self.store_profile(project, profile.clone()).await?;
        let others = files.iter().filter(|file| file.sha256 != old);
        let others: Vec<BlobId> = others.map(|file| file.statistics).collect();
        match self.with_others(project, profile, &others).await {
            Ok(sums) => Ok(Some(Next { after, statistics, sums })),
            Err(error) => {
                self.objects().discard(statistics.blob).await;
                Err(error)
            }
        }
    }

    /// The statistics of a file together with those of others; none if there are no others.
    async fn with_others(
        &self,
        project: &Project,
        own: &Profile,
        others: &[BlobId],
    ) -> Result<Option<Staged>> {
        if others.is_empty() {
            return Ok(None);
        }
        let mut sum = own.clone();
        for other in others {
            let other = self.profile(project, *other).await?;
            let merged = blocking(move || {
                sum.merge(&other);
                Ok(sum)
            });
            sum = merged.await?;
        }
        self.store_profile(project, sum).await.map(Some)
    }

    /// Gives up what was stored for a replacement that came to nothing.
    pub async fn give_up(&self, staged: Vec<BlobId>) {
        for blob in staged {
            self.objects().discard(blob).await;
        }
    }

    /// The datasets that something left a version of, by its origin.
    pub async fn made_by(&self, project: &Project, kind: &str, id: &str) -> Result<Vec<String>> {
        let found = self.registered(project, kind, &[id.to_owned()]).await?;
        let mut names: Vec<_> = found.into_iter().map(|it| it.dataset.to_string()).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}
