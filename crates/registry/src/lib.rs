//! Registered models: versions, aliases and stages, and the proof of what they are; the MLflow
//! registry API.
//!
//! Must hold:
//! - A model belongs to a project and is authorised by its name there. A model of another project
//!   reads exactly like one that does not exist.
//! - A version's number is never given twice while its model lives; its source never changes.
//! - What a version's source names here, a run, a logged model or another version, was found in the
//!   same project and readable by whoever registered it. No source is ever a path on this machine.
//! - Whoever moves an alias or a stage stands in the history, which only grows.
//! - Every change of a model, its versions or aliases holds that model's lock.
//!
//! Not here: runs, logged models and their files (`tracking`), how the protocol is spelled
//! (`mlflow`).

mod access;
mod actions;
pub mod alias;
pub mod bom;
pub mod config;
pub mod history;
pub mod model;
pub mod scan;
mod schema;
pub mod signing;
mod tag;
mod transfer;
pub mod version;
mod wire;

use std::fmt;
use std::sync::Arc;

use falaj_governance::tenancy::Tenancy;
use falaj_mlflow::Places;
use falaj_store::db::Db;
use falaj_tracking::Tracking;
use falaj_web::Module;

pub use actions::{ACTIONS, MODEL_DELETE, MODEL_IMPORT, MODEL_PROMOTE, MODEL_READ, MODEL_WRITE};
pub use config::RegistryConfig;
pub use schema::MIGRATIONS;

/// The registry service. Cheap to clone.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    config: RegistryConfig,
    tracking: Tracking,
    tenancy: Tenancy,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    #[must_use]
    pub fn new(config: RegistryConfig, tracking: Tracking, tenancy: Tenancy) -> Self {
        Self(Arc::new(Inner { config, tracking, tenancy }))
    }

    #[must_use]
    pub fn config(&self) -> &RegistryConfig {
        &self.0.config
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        self.0.tracking.db()
    }

    #[must_use]
    pub fn tracking(&self) -> &Tracking {
        &self.0.tracking
    }

    #[must_use]
    pub fn tenancy(&self) -> &Tenancy {
        &self.0.tenancy
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(registry: &Registry, places: &Places) -> Module {
    let service = Arc::new(registry.clone());
    Module::new("registry")
        .actions(ACTIONS)
        .routes(model::http::routes(service.clone(), places.clone()))
        .routes(version::http::routes(service.clone(), places.clone()))
        .routes(alias::http::routes(service.clone(), places.clone()))
        .routes(history::http::routes(service))
        .routes(transfer::http::routes(registry, places))
}
