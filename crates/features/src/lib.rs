//! Features: what a model is told about the world, as it was known at a moment.
//!
//! | module | holds |
//! |---|---|
//! | [`definition`] | entities, sources, feature views, services; versions and their hashes |
//! | [`history`] | pushed rows: the log |
//! | [`offline`] | joining histories to moments, in Arrow |
//!
//! Must hold:
//! - A row of a training set says what was known at its moment and nothing that became known later;
//!   every row that was asked about is answered, in the order it was asked.
//! - What decides a number is a version, and a version never changes.
//! - Everything belongs to a project and is authorised by its name there.

mod actions;
pub mod config;
pub mod definition;
pub mod history;
pub mod name;
pub mod offline;
mod pages;
pub mod reference;
pub mod schema;

use std::fmt;
use std::sync::Arc;

use falaj_base::{ProjectId, Result};
use falaj_governance::audit::ReadLog;
use falaj_mlflow::Places;
use falaj_store::db::{Db, Migration};
use falaj_store::objects::Objects;
use falaj_web::Module;

pub use actions::{
    ACTIONS, FEATURE_APPLY, FEATURE_ONLINE, FEATURE_READ, FEATURE_WRITE, TRAINING_SET_CREATE,
    TRAINING_SET_READ,
};
pub use config::FeaturesConfig;
use definition::Catalog;
use definition::catalog::Catalogs;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "definitions", sql: definition::store::SCHEMA },
    Migration { version: 2, name: "history", sql: history::log::SCHEMA },
];

/// The features service. Cheap to clone.
#[derive(Clone)]
pub struct Features(Arc<Inner>);

struct Inner {
    config: FeaturesConfig,
    db: Db,
    objects: Objects,
    reads: ReadLog,
    catalogs: Catalogs,
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Features").finish_non_exhaustive()
    }
}

impl Features {
    #[must_use]
    pub fn new(config: FeaturesConfig, db: Db, objects: Objects, reads: ReadLog) -> Self {
        let catalogs = Catalogs::new(db.clone());
        Self(Arc::new(Inner { config, db, objects, reads, catalogs }))
    }

    #[must_use]
    pub fn config(&self) -> &FeaturesConfig {
        &self.0.config
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        &self.0.db
    }

    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.0.objects
    }

    /// Where reads of data are put on record.
    #[must_use]
    pub fn reads(&self) -> &ReadLog {
        &self.0.reads
    }

    pub(crate) fn catalogs(&self) -> &Catalogs {
        &self.0.catalogs
    }

    /// The latest definitions of a project, from memory while nothing is applied.
    pub async fn catalog(&self, project: ProjectId) -> Result<Arc<Catalog>> {
        self.catalogs().of(project).await
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(features: &Features, places: &Places) -> Module {
    let service = Arc::new(features.clone());
    Module::new("features")
        .actions(ACTIONS)
        .routes(definition::http::routes(service, places.clone()))
        .worker(features.catalogs().epoch().poller("feature-epoch"))
}
