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
pub mod approval;
pub mod bom;
pub mod card;
pub mod config;
pub mod egress;
pub mod evidence;
pub mod history;
pub mod in_use;
pub mod lineage;
pub mod mlmodel;
pub mod model;
pub mod promotion;
pub mod scan;
mod schema;
pub mod signing;
mod tag;
mod transfer;
pub mod version;
pub mod webhook;
mod wire;

use std::fmt;
use std::sync::{Arc, OnceLock};

use falaj_governance::tenancy::Tenancy;
use falaj_mlflow::Places;
use falaj_store::db::Db;
use falaj_store::keys::Keys;
use falaj_tracking::Tracking;
use falaj_web::Module;
use tokio::sync::Notify;

pub use access::model_resource;
pub use actions::{
    ACTIONS, MODEL_DELETE, MODEL_GOVERN, MODEL_IMPORT, MODEL_PROMOTE, MODEL_READ, MODEL_RENAME,
    MODEL_UNTAG, MODEL_WITHDRAW, MODEL_WRITE, WEBHOOK_READ, WEBHOOK_WRITE,
};
pub use config::RegistryConfig;
pub use schema::MIGRATIONS;

/// The registry service. Cheap to clone.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    config: RegistryConfig,
    tracking: Tracking,
    tenancy: Tenancy,
    keys: Keys,
    /// Tells the worker that a version was registered.
    registered: Arc<Notify>,
    turns: evidence::Turns,
    sender: webhook::Sender,
    /// Tells the worker that webhooks may have something to tell.
    told: Arc<Notify>,
    /// Who needs versions to stay.
    users: OnceLock<Arc<dyn in_use::Users>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    #[must_use]
    pub fn new(config: RegistryConfig, tracking: Tracking, tenancy: Tenancy, keys: Keys) -> Self {
        tracking.set_keeper(Arc::new(version::Versions));
        Self(Arc::new(Inner {
            sender: webhook::Sender::new(config.webhooks.clone()),
            turns: evidence::Turns::new(config.inline_at_once),
            config,
            tracking,
            tenancy,
            keys,
            registered: Arc::default(),
            told: Arc::default(),
            users: OnceLock::new(),
        }))
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

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn signal(&self) -> Arc<Notify> {
        self.0.registered.clone()
    }

    pub(crate) fn turns(&self) -> &evidence::Turns {
        &self.0.turns
    }

    pub(crate) fn sender(&self) -> &webhook::Sender {
        &self.0.sender
    }

    pub(crate) fn told(&self) -> Arc<Notify> {
        self.0.told.clone()
    }

    /// Wakes the worker that signs.
    pub(crate) fn wake(&self) {
        self.0.registered.notify_one();
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
        .routes(history::http::routes(service.clone()))
        .routes(evidence::http::routes(service.clone()))
        .routes(card::http::routes(service.clone()))
        .routes(promotion::http::routes(service.clone()))
        .routes(approval::http::routes(service.clone()))
        .routes(lineage::http::routes(service.clone()))
        .routes(webhook::http::routes(service, places.clone()))
        .routes(transfer::http::routes(registry, places))
        .worker(evidence::worker(registry))
        .worker(webhook::worker(registry))
}
