//! Features: what a model is told about the world, as it was known at a moment.
//!
//! | module | holds |
//! |---|---|
//! | [`definition`] | entities, sources, feature views, services; versions and their hashes |
//! | [`history`] | pushed rows: the log, and the files that it is gathered into |
//! | [`online`] | the latest values |
//! | `feast` | Feast's routes |
//! | [`offline`] | joining histories to moments, in Arrow |
//! | [`source`] | where the rows of views lie, and reading them |
//! | [`training`] | training sets: asked for, made, kept |
//! | `flight` | training sets over Arrow Flight |
//!
//! Must hold:
//! - A row of a training set says what was known at its moment and nothing that became known later;
//!   every row that was asked about is answered, in the order it was asked.
//! - What decides a number is a version, and a version never changes.
//! - Everything belongs to a project and is authorised by its name there.

mod actions;
pub mod config;
pub mod definition;
mod feast;
mod flight;
pub mod history;
pub mod name;
pub mod offline;
pub mod online;
mod pages;
pub mod reference;
pub mod schema;
pub mod source;
pub mod training;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use falaj_base::{Error, ProjectId, Result};
use falaj_governance::audit::{ReadLog, Tally};
use falaj_governance::tenancy::Tenancy;
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
use online::{Shelf, Underway};

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "definitions", sql: definition::store::SCHEMA },
    Migration { version: 2, name: "history", sql: history::log::SCHEMA },
    Migration { version: 3, name: "training sets", sql: training::store::SCHEMA },
    Migration { version: 4, name: "materialized", sql: online::materialize::SCHEMA },
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
    shelf: Shelf,
    tally: Tally,
    underway: Underway,
    training: training::Signals,
    around: OnceLock<Around>,
}

/// What stands beside this domain, and above it.
struct Around {
    tenancy: Tenancy,
    objects: Arc<dyn source::ProjectObjects>,
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Features").finish_non_exhaustive()
    }
}

impl Features {
    /// The latest values lie in a file in `data_dir`, unless the configuration says otherwise.
    #[must_use]
    pub fn new(
        config: FeaturesConfig,
        db: Db,
        objects: Objects,
        reads: ReadLog,
        data_dir: &Path,
    ) -> Self {
        let catalogs = Catalogs::new(db.clone());
        let shelf = Shelf::new(config.online.clone(), db.clone(), data_dir);
        let tally = Tally::new(&FEATURE_ONLINE, reads.clone());
        let (training, around) = (training::Signals::default(), OnceLock::new());
        Self(Arc::new(Inner {
            config,
            db,
            objects,
            reads,
            catalogs,
            shelf,
            tally,
            underway: Underway::default(),
            training,
            around,
        }))
    }

    /// Tells what stands around this domain; once, before it is used.
    pub fn connect(&self, tenancy: Tenancy, objects: Arc<dyn source::ProjectObjects>) {
        drop(self.0.around.set(Around { tenancy, objects }));
    }

    fn around(&self) -> Result<&Around> {
        self.0.around.get().ok_or_else(|| Error::internal("features were not connected"))
    }

    pub(crate) fn tenancy(&self) -> Result<&Tenancy> {
        Ok(&self.around()?.tenancy)
    }

    pub(crate) fn project_objects(&self) -> Result<&dyn source::ProjectObjects> {
        Ok(&*self.around()?.objects)
    }

    pub(crate) fn training(&self) -> &training::Signals {
        &self.0.training
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

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.0.shelf
    }

    pub(crate) fn underway(&self) -> &Underway {
        &self.0.underway
    }

    /// Who read which latest values, for the audit log.
    pub(crate) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// Hands what was counted of reads to the audit log.
    pub fn flush(&self) {
        self.tally().flush();
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
        .routes(definition::http::routes(service.clone(), places.clone()))
        .routes(training::http::routes(service.clone(), places.clone()))
        .routes(flight::routes(service.clone(), places.clone()))
        .routes(online::http::routes(service.clone(), places.clone()))
        .routes(feast::routes(service, places.clone()))
        .worker(features.catalogs().epoch().poller("feature-epoch"))
        .worker(training::maker(features))
        .worker(history::folder(features))
        .worker(history::trimmer(features))
        .worker(features.shelf().worker())
        .worker(features.tally().worker("feature-tally"))
}
