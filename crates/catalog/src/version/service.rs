//! The verbs on versions.

use falaj_base::{BlobId, Ctx, Error, Page, PageQuery, Resource, Result, code};
use falaj_governance::tenancy::Project;
use falaj_mlflow::asked::not_a_page;
use falaj_store::db::Tx;
use falaj_store::objects::{Objects, Staged};
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::store;
use super::tag::removed;
use super::version::{Manifest, Origin, Verb, Version, VersionFile, Which, same_columns};
use crate::dataset::{Dataset, store as datasets};
use crate::statistics::{Profile, Statistics};
use crate::{DATASET_DELETE, DATASET_READ, DATASET_WRITE, Datasets, blocking};

/// How a blob knows that a version refers to it, and that a file does.
pub(crate) const VERSION: &str = "dataset-version";
pub(crate) const FILE: &str = "dataset-file";

const MAX_MESSAGE: usize = 4096;
/// How often files are appended to a dataset that others append to at the same time.
const ATTEMPTS: usize = 5;

/// A request for a version.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVersion {
    /// The SHA-256 of files that were sent before, in the order of their rows.
    pub files: Vec<String>,
    /// Whether they come after the files of the version before, rather than in their place.
    #[serde(default)]
    pub append: bool,
    /// The version that this one must follow; the latest, whichever it is, if absent. 0 for the
    /// first.
    #[serde(default)]
    pub parent: Option<i64>,
    /// Why, for the history.
    #[serde(default)]
    pub message: Option<String>,
}

/// A version that is about to be written: everything is there but its number.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) project: Project,
    pub(crate) dataset: Dataset,
    /// The latest version that it was made upon.
    pub(crate) parent: i64,
    /// Whether it may follow another one as well.
    pub(crate) anywhere: bool,
    pub(crate) verb: Verb,
    pub(crate) manifest: Manifest,
    pub(crate) statistics: Kept,
    pub(crate) origin: Option<Origin>,
    pub(crate) message: Option<String>,
    /// Whose version it is; the caller's if absent.
    pub(crate) author: Option<String>,
    pub(crate) max_versions: usize,
}

/// Statistics that were just stored, or are those of something else.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Stored(Staged),
    Shared(BlobId),
}

impl Commit {
    /// Writes it, as part of a transaction that has the dataset locked, and puts it on record.
    pub(crate) fn write(&self, tx: &mut Tx<'_>, ctx: &Ctx, resource: &Resource) -> Result<Version> {
        let id = &self.dataset.id;
        let latest = store::find(tx, id, &Which::Latest)?;
        let before = latest.as_ref().map_or(0, |latest| latest.version);
        if before != self.parent && !self.anywhere {
            let text = format!("the latest version is {before}, and no longer {}", self.parent);
            return Err(Error::new(&code::CHANGED, text).at("parent"));
        }
        let digest = self.manifest.digest()?;
        if let Some(latest) = latest.filter(|it| it.digest == digest && it.removed_at.is_none()) {
            // The same again is no change; that somebody asked for it is on record.
            let change = Change::new(&DATASET_WRITE, resource)
                .detail("version", latest.version)
                .detail("changed", false)
                .reply(200, &latest);
            tx.record(ctx, change)?;
            return Ok(latest);
        }
        if usize::try_from(before).unwrap_or(usize::MAX) >= self.max_versions {
            let text = format!(
                "a dataset has at most {} versions (`datasets.max_versions`)",
                self.max_versions
            );
            return Err(Error::new(&code::CONFLICT, text));
        }
        self.files_are_there(tx)?;
        let number = before + 1;
        let owner = format!("{id}/{number}");
        let statistics = match &self.statistics {
            Kept::Stored(staged) => Objects::attach(tx, staged, VERSION, &owner)?,
            Kept::Shared(blob) => {
                Objects::share(tx, self.project.tenant_id, *blob, VERSION, &owner)?;
                *blob
            }
        };
        let version = Version {
            version: number,
            made_by: self.verb,
            digest,
            parent: (before > 0).then_some(before),
            rows: self.manifest.rows,
            size: self.manifest.size(),
            files: self.manifest.files.len() as u64,
            columns: self.manifest.columns.clone(),
            tags: Vec::new(),
            origin: self.origin.clone(),
            message: self.message.clone(),
            created_at: tx.now(),
            created_by: self.author.clone().unwrap_or_else(|| ctx.principal.name.clone()),
            removed_at: None,
            statistics,
        };
        store::insert(tx, id, &version, &self.manifest)?;
        if !datasets::advance(tx, id, number)? {
            return Err(Error::not_found("dataset", &self.dataset.name));
        }
        let told = json!({
            "dataset": self.dataset.name, "version": number, "digest": version.digest,
            "parent": version.parent, "made_by": self.verb, "rows": version.rows,
            "files": version.files, "origin": version.origin,
        });
        let change = Change::new(&DATASET_WRITE, resource)
            .event("dataset.version", &told)
            .after(&version.digest)
            .detail("version", number)
            .detail("made_by", self.verb.as_str())
            .reply(200, &version);
        tx.record(ctx, change)?;
        Ok(version)
    }

    /// A file that nobody had for too long may be gone since it was looked for.
    fn files_are_there(&self, tx: &mut Tx<'_>) -> Result<()> {
        let digests: Vec<String> =
            self.manifest.files.iter().map(|file| file.sha256.clone()).collect();
        let known = store::known_files(tx, &self.dataset.id, &digests)?;
        let gone = digests.iter().position(|sha256| !known.contains_key(sha256));
        gone.map_or(Ok(()), |place| Err(unknown(place, &digests[place])))
    }
}

fn unknown(place: usize, sha256: &str) -> Error {
    let allowed = "the SHA-256 of a file that was sent to this dataset";
    Error::invalid(format!("files[{place}]"), sha256, allowed)
}

fn check_message(message: Option<&String>) -> Result<()> {
    match message {
        Some(text) if text.is_empty() || text.len() > MAX_MESSAGE || text.contains('\0') => {
            Err(Error::invalid("message", text, format!("1 to {MAX_MESSAGE} bytes of text")))
        }
        _ => Ok(()),
    }
}

impl Datasets {
    /// Makes a version of files that were sent before.
    pub async fn commit(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        new: NewVersion,
    ) -> Result<Version> {
        let dataset = self.seen(ctx, project, name, &DATASET_WRITE).await?;
        check_message(new.message.as_ref())?;
        if new.files.is_empty() {
            return Err(Error::invalid("files", "nothing", "at least one"));
        }
        let most = self.config().max_files;
        if new.files.len() > most {
            let allowed = format!("at most {most} (`datasets.max_files`)");
            return Err(Error::invalid("files", new.files.len(), allowed));
        }
        let mut attempt = 1;
        loop {
            let commit = self.prepared(project, &dataset, &new).await?;
            let written = self.written(ctx, commit).await;
            match written {
                Err(error) if error.code() == &code::CHANGED && new.parent.is_none() => {
                    attempt += 1;
                    if attempt > ATTEMPTS {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// Puts a version down in a transaction of its own.
    pub(crate) async fn written(&self, ctx: &Ctx, commit: Commit) -> Result<Version> {
        let staged = match &commit.statistics {
            Kept::Stored(staged) => Some(staged.blob),
            Kept::Shared(_) => None,
        };
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            datasets::lock(tx, &commit.dataset.id)?;
            let resource = commit.dataset.resource(&commit.project);
            let version = commit.write(tx, &ctx, &resource)?;
            Ok(version)
        };
        let written = self.db().write(write).await;
        if let (Err(_), Some(blob)) = (&written, staged) {
            self.objects().discard(blob).await;
        }
        written
    }

    /// Everything about a version but its number.
    async fn prepared(
        &self,
        project: &Project,
        dataset: &Dataset,
        new: &NewVersion,
    ) -> Result<Commit> {
        let (id, digests, append) = (dataset.id.clone(), new.files.clone(), new.append);
        let read = move |tx: &mut Tx<'_>| {
            let latest = store::find(tx, &id, &Which::Latest)?;
            let before = match &latest {
                Some(latest) if append => store::files_of(tx, &id, latest.version)?,
                _ => Vec::new(),
            };
            Ok((latest, before, store::known_files(tx, &id, &digests)?))
        };
        let (latest, before, known) = self.db().read(read).await?;
        let parent = latest.as_ref().map_or(0, |latest| latest.version);
        if let Some(wanted) = new.parent.filter(|wanted| *wanted != parent) {
            let text = format!("the latest version is {parent}, and not {wanted}");
            return Err(Error::new(&code::CHANGED, text).at("parent"));
        }
        let mut files: Vec<VersionFile> = before;
        let held = files.len();
        for (place, sha256) in new.files.iter().enumerate() {
            let file = known.get(sha256).ok_or_else(|| unknown(place, sha256))?;
            let first = files.first().unwrap_or(file);
            same_columns(&format!("files[{place}]"), &file.columns, &first.columns)?;
            if files.iter().any(|other| other.sha256 == *sha256) {
                let field = format!("files[{place}]");
                return Err(Error::invalid(field, sha256, "each file once in a version"));
            }
            files.push(file.clone());
        }
        if files.len() > self.config().max_files {
            let allowed = format!("at most {} (`datasets.max_files`)", self.config().max_files);
            return Err(Error::invalid("files", files.len(), allowed));
        }
        let sums = latest.filter(|_| append).map(|latest| latest.statistics);
        let parts = sums.into_iter().chain(files[held..].iter().map(|file| file.statistics));
        let statistics = self.summed(project, parts.collect()).await?;
        let columns = files.first().map(|file| file.columns.clone()).unwrap_or_default();
        Ok(Commit {
            project: project.clone(),
            dataset: dataset.clone(),
            parent,
            anywhere: !append && new.parent.is_none(),
            verb: if append { Verb::Append } else { Verb::Put },
            manifest: Manifest::new(columns, files),
            statistics,
            origin: None,
            message: new.message.clone(),
            author: None,
            max_versions: self.config().max_versions,
        })
    }

    /// The statistics of several parts as those of one.
    async fn summed(&self, project: &Project, parts: Vec<BlobId>) -> Result<Kept> {
        if let [only] = parts.as_slice() {
            return Ok(Kept::Shared(*only));
        }
        let mut sum: Option<Profile> = None;
        for part in parts {
            let part = self.profile(project, part).await?;
            let whole = move |before: Option<Profile>| match before {
                Some(mut before) => {
                    before.merge(&part);
                    before
                }
                None => part,
            };
            let before = sum.take();
            sum = Some(blocking(move || Ok(whole(before))).await?);
        }
        let sum = sum.ok_or_else(|| Error::internal("a version without files"))?;
        Ok(Kept::Stored(self.store_profile(project, sum).await?))
    }

    /// The history of a dataset, the newest first.
    pub async fn versions(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        query: PageQuery,
    ) -> Result<Page<Version>> {
        let dataset = self.seen(ctx, project, name, &DATASET_READ).await?;
        let limit = query.limit()?;
        let before = match query.after() {
            "" => i64::MAX,
            token => token.parse().map_err(|_| not_a_page(&query))?,
        };
        let read = move |tx: &mut Tx<'_>| store::list(tx, &dataset.id, before, limit + 1);
        Ok(Page::cut(self.db().read(read).await?, limit, |it| it.version.to_string()))
    }

    /// One version, with its files.
    pub async fn version(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        which: Which,
    ) -> Result<(Dataset, Version, Vec<VersionFile>)> {
        let dataset = self.seen(ctx, project, name, &DATASET_READ).await?;
        let (id, shown) = (dataset.id.clone(), which.to_string());
        let read = move |tx: &mut Tx<'_>| {
            let version = store::find(tx, &id, &which)?;
            let files = match &version {
                Some(version) => store::files_of(tx, &id, version.version)?,
                None => Vec::new(),
            };
            Ok((version, files))
        };
        let (version, files) = self.db().read(read).await?;
        let version = version.ok_or_else(|| {
            let allowed = dataset.latest.map_or_else(
                || "nothing: the dataset has no versions yet".to_owned(),
                |latest| format!("1 to {latest}, a tag, or a time of one"),
            );
            Error::invalid("version", shown, allowed)
        })?;
        Ok((dataset, version, files))
    }

    /// What the values of a version are like.
    pub async fn statistics(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        which: Which,
    ) -> Result<(Version, Statistics)> {
        let (_, version, _) = self.version(ctx, project, name, which).await?;
        if version.removed_at.is_some() {
            return Err(removed(version.version));
        }
        let profile = self.profile(project, version.statistics).await?;
        let statistics = blocking(move || Ok(profile.shown())).await?;
        Ok((version, statistics))
    }

    /// Makes a version that is equal to an older one.
    pub async fn roll_back(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        which: Which,
        message: Option<String>,
    ) -> Result<Version> {
        let dataset = self.seen(ctx, project, name, &DATASET_WRITE).await?;
        check_message(message.as_ref())?;
        let (_, old, files) = self.version(ctx, project, name, which).await?;
        if old.removed_at.is_some() {
            return Err(removed(old.version));
        }
        let origin = Origin {
            kind: "version".to_owned(),
            id: old.version.to_string(),
            digest: Some(old.digest.clone()),
        };
        let commit = Commit {
            project: project.clone(),
            parent: dataset.latest.unwrap_or_default(),
            dataset,
            anywhere: true,
            verb: Verb::Rollback,
            manifest: Manifest::new(old.columns.clone(), files),
            statistics: Kept::Shared(old.statistics),
            origin: Some(origin),
            message,
            author: None,
            max_versions: self.config().max_versions,
        };
        self.written(ctx, commit).await
    }

    /// Removes the files of a version; it stays in the history.
    pub async fn remove_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        which: Which,
    ) -> Result<Version> {
        let dataset = self.seen(ctx, project, name, &DATASET_DELETE).await?;
        let (ctx, resource) = (ctx.clone(), dataset.resource(project));
        let write = move |tx: &mut Tx<'_>| {
            datasets::lock(tx, &dataset.id)?;
            let found = store::find(tx, &dataset.id, &which)?;
            let allowed = "a version of the dataset";
            let mut version = found.ok_or_else(|| Error::invalid("version", &which, allowed))?;
            let latest = store::find(tx, &dataset.id, &Which::Latest)?;
            if latest.is_some_and(|latest| latest.version == version.version) {
                let text =
                    "the latest version is what the dataset is; delete the dataset, or put another";
                return Err(Error::new(&code::IN_USE, text));
            }
            if let Some(tag) = version.tags.first() {
                let text = format!("the tag `{tag}` keeps version {}", version.version);
                return Err(Error::new(&code::IN_USE, text));
            }
            if !remove(tx, &dataset, version.version, version.statistics)? {
                return Err(removed(version.version));
            }
            version.removed_at = Some(tx.now());
            let told = json!({ "dataset": dataset.name, "version": version.version,
                "digest": version.digest });
            let change = Change::new(&DATASET_DELETE, &resource)
                .event("dataset.version-removed", &told)
                .before(&version.digest)
                .detail("version", version.version)
                .reply(200, &version);
            tx.record(&ctx, change)?;
            Ok(version)
        };
        self.db().write(write).await
    }
}

/// Takes the files of a version away, and its statistics, which tell of their values. The files
/// themselves go with the last version that has them.
pub(crate) fn remove(
    tx: &mut Tx<'_>,
    dataset: &Dataset,
    version: i64,
    statistics: BlobId,
) -> Result<bool> {
    if !store::remove(tx, &dataset.id, version)? {
        return Ok(false);
    }
    Objects::detach(tx, statistics, VERSION, &format!("{}/{version}", dataset.id))?;
    Ok(true)
}
