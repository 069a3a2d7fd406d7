//! Files that another domain made, as versions of datasets: a training set and its snapshot here
//! come about in one transaction.

use std::collections::BTreeSet;

use falaj_base::{BlobId, Ctx, Error, Resource, Result, hex};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Objects, Staged};
use schemars::JsonSchema;
use serde::Serialize;

use crate::dataset::{Described, add, store as datasets};
use crate::name::DatasetName;
use crate::version::{
    ColumnInfo, Commit, FILE, Kept, Manifest, Origin, Verb, Version, VersionFile, store,
};
use crate::{DATASET_WRITE, Datasets};

/// A file that is about to become a version.
#[derive(Debug)]
pub struct Registration {
    project: Project,
    name: DatasetName,
    columns: Vec<ColumnInfo>,
    rows: u64,
    size: u64,
    sha256: String,
    statistics: Staged,
    origin: Origin,
    message: Option<String>,
    author: String,
    max_datasets: usize,
    max_versions: usize,
}

impl Datasets {
    /// Refuses a name that the caller may not write to, there or not yet. What is classified becomes
    /// part only of a dataset that is classified so: whoever reads that one could read it there.
    pub async fn may_register(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &DatasetName,
        classified: &BTreeSet<String>,
    ) -> Result<()> {
        let (id, wanted) = (project.id, name.clone());
        let found = self.db().read(move |tx| datasets::find(tx, id, &wanted)).await?;
        let resource = match &found {
            Some(dataset) => dataset.resource(project),
            None => crate::dataset::resource(project, name.as_str(), false),
        };
        ctx.authorize(&DATASET_WRITE, &resource).await?;
        let own = found.as_ref().and_then(|dataset| dataset.about.classification.as_ref());
        if classified.iter().all(|one| Some(one) == own) {
            return Ok(());
        }
        let all = classified.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(" and ");
        let allowed =
            format!("a dataset that is there and classified {all}, as what it is made of");
        Err(Error::invalid("register", name, allowed))
    }

    /// Prepares a file of Parquet that was stored and is not visible yet.
    pub async fn registration(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: DatasetName,
        file: &Staged,
        (origin, message, author): (Origin, Option<String>, String),
    ) -> Result<Registration> {
        // How it is classified was asked for with it.
        self.may_register(ctx, project, &name, &BTreeSet::new()).await?;
        let (columns, profile) = self.looked_through(project, file).await?;
        let rows = profile.rows();
        let statistics = self.store_profile(project, profile).await?;
        Ok(Registration {
            project: project.clone(),
            name,
            columns,
            rows,
            size: file.size,
            sha256: hex(&file.sha256),
            statistics,
            origin,
            message,
            author,
            max_datasets: self.config().max_datasets,
            max_versions: self.config().max_versions,
        })
    }
}

impl Registration {
    /// Makes the version, as part of the caller's transaction, of a blob that is visible in it. The
    /// dataset is made if there is none.
    pub fn write(self, tx: &mut Tx<'_>, ctx: &Ctx, blob: BlobId) -> Result<Version> {
        let project = &self.project;
        datasets::lock_files(tx, project.id, &[&self.sha256])?;
        let found = datasets::find(tx, project.id, &self.name)?;
        let dataset = if let Some(dataset) = found {
            dataset
        } else {
            let about = Described::default();
            add(tx, ctx, project, (self.name.clone(), about), self.max_datasets)?
        };
        datasets::lock(tx, &dataset.id)?;
        let owner = format!("{}/{}", dataset.id, self.sha256);
        let had = store::known_files(tx, &dataset.id, std::slice::from_ref(&self.sha256))?;
        let file = if let Some(file) = had.into_values().next() {
            file
        } else {
            Objects::share(tx, project.tenant_id, blob, FILE, &owner)?;
            VersionFile {
                sha256: self.sha256.clone(),
                rows: self.rows,
                size: self.size,
                columns: self.columns.clone(),
                blob,
                statistics: Objects::attach(tx, &self.statistics, FILE, &owner)?,
            }
        };
        store::insert_file(tx, &dataset.id, &file)?;
        let resource = dataset.resource(project);
        let statistics = Kept::Shared(file.statistics);
        let commit = Commit {
            project: self.project.clone(),
            parent: dataset.latest.unwrap_or_default(),
            dataset,
            anywhere: true,
            verb: Verb::Put,
            manifest: Manifest::new(file.columns.clone(), vec![file]),
            statistics,
            origin: Some(self.origin),
            message: self.message,
            author: Some(self.author),
            max_versions: self.max_versions,
        };
        commit.write(tx, ctx, &resource)
    }
}

/// A version that something else became.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Registered {
    pub dataset: DatasetName,
    pub version: i64,
    pub digest: String,
    /// The id of what it was made of.
    pub of: String,
    #[serde(skip)]
    #[schemars(skip)]
    about: Described,
}

impl Registered {
    /// What it is authorised on.
    #[must_use]
    pub fn resource(&self, project: &Project) -> Resource {
        crate::dataset::described(project, &self.dataset, &self.about)
    }
}

impl Datasets {
    /// The versions that some things of a kind became. Whoever shows them authorises each.
    pub async fn registered(
        &self,
        project: &Project,
        kind: &str,
        ids: &[String],
    ) -> Result<Vec<Registered>> {
        let (project, kind) = (project.id, kind.to_owned());
        let found = self.db().read(move |tx| datasets::registered(tx, project)).await?;
        let of_kind = found.into_iter().filter(|(origin, ..)| origin.kind == kind);
        let made = of_kind.filter(|(origin, ..)| ids.contains(&origin.id));
        let shown = made.map(|(origin, dataset, version, digest, about)| Registered {
            dataset,
            version,
            digest,
            of: origin.id,
            about,
        });
        Ok(shown.collect())
    }
}
