//! Datasets of a project, versioned by what they hold.
//!
//! | module | holds |
//! |---|---|
//! | [`dataset`] | names, owners, how long things are kept |
//! | [`file`] | taking files in: Parquet as it is, CSV made into it |
//! | [`version`] | lists of files that never change: put, append, tag, roll back, read |
//! | [`diff`] | what differs between two versions |
//! | [`statistics`] | what the values of columns are like, mergeable |
//! | [`register`], [`replace`] | files that another domain made, and had to take away again |
//! | [`blob`], [`pipe`] | blobs read as files, and written by threads |
//!
//! Must hold:
//! - A version never changes, and its digest tells what it holds.
//! - Files lie sealed in the object store, in the zone of their project, equal ones once.
//! - Everything belongs to a project and is authorised by its name there.
//!
//! Not here: datasets as runs log them (`tracking`), features (`features`).

mod actions;
pub mod blob;
pub mod config;
pub mod dataset;
pub mod diff;
pub mod file;
pub mod name;
pub mod pipe;
pub mod register;
pub mod replace;
pub mod statistics;
mod value;
pub mod version;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj_base::{Error, Result};
use falaj_governance::audit::ReadLog;
use falaj_governance::tenancy::Tenancy;
use falaj_mlflow::Places;
use falaj_store::db::{Db, Migration};
use falaj_store::objects::Objects;
use falaj_web::Module;

pub use actions::{ACTIONS, DATASET_DELETE, DATASET_READ, DATASET_WRITE};
pub use config::DatasetsConfig;
use diff::Diffs;

pub static MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "datasets", sql: dataset::store::SCHEMA }];

/// The datasets of all projects. Cheap to clone.
#[derive(Clone)]
pub struct Datasets(Arc<Inner>);

struct Inner {
    config: DatasetsConfig,
    db: Db,
    objects: Objects,
    reads: ReadLog,
    tenancy: Tenancy,
    folder: PathBuf,
    diffs: Diffs,
}

impl fmt::Debug for Datasets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datasets").finish_non_exhaustive()
    }
}

impl Datasets {
    /// What takes more than memory while versions are compared goes to files in `data_dir`.
    #[must_use]
    pub fn new(
        config: DatasetsConfig,
        db: Db,
        objects: Objects,
        reads: ReadLog,
        tenancy: Tenancy,
        data_dir: &Path,
    ) -> Self {
        let diffs = Diffs::new(config.diffs_at_once.max(1));
        let folder = data_dir.to_owned();
        Self(Arc::new(Inner { config, db, objects, reads, tenancy, folder, diffs }))
    }

    #[must_use]
    pub fn config(&self) -> &DatasetsConfig {
        &self.0.config
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        &self.0.db
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.0.objects
    }

    pub(crate) fn reads(&self) -> &ReadLog {
        &self.0.reads
    }

    pub(crate) fn tenancy(&self) -> &Tenancy {
        &self.0.tenancy
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0.folder
    }

    pub(crate) fn diffs(&self) -> &Diffs {
        &self.0.diffs
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(datasets: &Datasets, places: &Places) -> Module {
    let service = Arc::new(datasets.clone());
    Module::new("datasets")
        .actions(ACTIONS)
        .routes(dataset::http::routes(service.clone(), places.clone()))
        .routes(file::http::routes(service.clone(), places.clone()))
        .routes(version::http::routes(service, places.clone()))
        .worker(dataset::sweeper(datasets))
}

/// Runs work that may block where it may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
