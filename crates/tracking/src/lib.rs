//! Experiments and runs: what was tried, with what, and what came of it; the MLflow tracking API.
//!
//! Must hold:
//! - Everything belongs to an experiment, an experiment to a project. An id of another project
//!   reads exactly like one that does not exist.
//! - A reply to a logging call follows its commit. Points, latest values, parameters and tags of
//!   one call commit together.
//! - A run is noted as touched, with a growing version, by every change that a search could notice:
//!   copies kept in memory are brought up to date by that number alone.
//! - Parameters never change once written.
//!
//! Not here: registered models (`registry`), how the protocol is spelled (`mlflow`), blobs
//! (`store::objects`).

pub mod access;
mod actions;
pub mod artifact;
pub mod ask;
pub mod config;
pub mod console;
pub mod dataset;
pub mod experiment;
pub mod follow;
mod homes;
mod key;
pub mod logged_model;
mod media;
pub mod metric;
mod native;
pub mod purge;
pub mod recipe;
pub mod run;
mod schema;
pub mod search;
mod server;
pub mod transfer;

use std::fmt;
use std::sync::{Arc, OnceLock};

use falaj_base::Result;
use falaj_governance::audit::ReadLog;
use falaj_mlflow::Places;
use falaj_store::db::Db;
use falaj_store::objects::Objects;
use falaj_web::Module;

pub use access::{Home, resource as experiment_resource};
pub use actions::{
    ACTIONS, ARTIFACT_DELETE, EXPERIMENT_CREATE, EXPERIMENT_DELETE, EXPERIMENT_PURGE,
    EXPERIMENT_READ, EXPERIMENT_UPDATE, GC, HOLD_READ, HOLD_WRITE, IMPORT, IMPORT_CHECK,
    RETENTION_READ, RETENTION_WRITE, RUN_DELETE, RUN_PURGE, RUN_READ, RUN_UNTAG, RUN_WRITE, SYNC,
};
pub use config::TrackingConfig;
pub use experiment::ExperimentId;
pub use run::RunId;
pub use schema::MIGRATIONS;

use artifact::SignedUrls;
use homes::Homes;
use key::Keys;
use metric::Compactor;
use native::Native;
use purge::Keeper;
use run::Repeats;
use search::Frames;

/// The tracking service. Cheap to clone.
#[derive(Clone)]
pub struct Tracking(Arc<Inner>);

struct Inner {
    config: TrackingConfig,
    db: Db,
    objects: Objects,
    reads: ReadLog,
    keys: Keys,
    homes: Homes,
    compactor: Compactor,
    frames: Frames,
    repeats: Repeats,
    /// Who else refers to files kept here.
    keeper: OnceLock<Arc<dyn Keeper>>,
}

impl fmt::Debug for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracking").finish_non_exhaustive()
    }
}

impl Tracking {
    #[must_use]
    pub fn new(config: TrackingConfig, db: Db, objects: Objects, reads: ReadLog) -> Self {
        Self(Arc::new(Inner {
            repeats: Repeats::default(),
            frames: Frames::new(config.search_memory.as_usize()),
            compactor: Compactor::new(config.compaction.clone(), db.clone()),
            config,
            db,
            objects,
            reads,
            keys: Keys::default(),
            homes: Homes::default(),
            keeper: OnceLock::new(),
        }))
    }

    /// Names the domain that refers to files kept here: what it refers to is not purged. The first
    /// one named stays.
    pub fn set_keeper(&self, keeper: Arc<dyn Keeper>) {
        let _ = self.0.keeper.set(keeper);
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        &self.0.db
    }

    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.0.objects
    }

    #[must_use]
    pub fn reads(&self) -> &ReadLog {
        &self.0.reads
    }

    #[must_use]
    pub fn config(&self) -> &TrackingConfig {
        &self.0.config
    }

    /// The time in MLflow's unit.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.db().now().micros() / 1000
    }

    /// Brings what was restored from another engine in line with how this one numbers changes.
    pub async fn settle(&self) -> Result<()> {
        self.db().write(run::touch::settle_versions).await
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(tracking: &Tracking, places: &Places, urls: &SignedUrls) -> Module {
    let service = Arc::new(tracking.clone());
    let native = Arc::new(Native::new(tracking.clone(), places.clone()));
    let module = Module::new("tracking")
        .actions(ACTIONS)
        .routes(experiment::http::routes(service.clone(), places.clone()))
        .routes(run::http::routes(service.clone(), places.clone()))
        .routes(metric::http::routes(service.clone(), places.clone()))
        .routes(dataset::http::routes(service.clone(), places.clone()))
        .routes(logged_model::http::routes(service.clone(), places.clone()))
        .routes(search::http::routes(service, places.clone()))
        .routes(artifact::http::routes(tracking, urls, places))
        .routes(server::routes(tracking, places))
        .routes(native::routes(&native))
        .routes(transfer::http::routes(tracking, places))
        .worker(tracking.0.compactor.worker())
        .worker(purge::worker(tracking))
        .worker(run::teller(tracking))
        .worker(run::forgetter(tracking.db().clone()));
    artifact::workers(tracking).into_iter().fold(module, Module::worker)
}
