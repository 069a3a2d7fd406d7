//! The table of contents: every module of the system, with its tables, its actions and its work.

use std::sync::Arc;

use falaj_base::Action;
use falaj_governance::authz::Authz;
use falaj_governance::identity::Identity;
use falaj_governance::keyring::Keyring;
use falaj_governance::{audit, authz, epoch, identity, keyring, residency, tenancy};
use falaj_store::db::ModuleMigrations;
use falaj_store::record::idempotency;
use falaj_store::worker::Worker;
use falaj_store::{keys, objects as blobs};
use falaj_web::Module;
use tokio::sync::Semaphore;

use crate::backup::{self, Backups};
use crate::config::Config;
use crate::dataset_runs::DatasetRuns;
use crate::events::{self, Events};
use crate::http;
use crate::objects::{self, ObjectService};
use crate::services::Services;

/// The tables of all modules, in the order they are built.
#[must_use]
pub fn migrations() -> Vec<ModuleMigrations> {
    let mut all = falaj_store::migrations();
    all.extend([
        ("keys", keys::MIGRATIONS),
        ("blobs", blobs::MIGRATIONS),
        ("epoch", epoch::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("identity", identity::MIGRATIONS),
        ("authz", authz::MIGRATIONS),
        ("audit", audit::MIGRATIONS),
        ("objects", objects::MIGRATIONS),
        ("tracking", falaj_tracking::MIGRATIONS),
        ("registry", falaj_registry::MIGRATIONS),
        ("traces", falaj_traces::MIGRATIONS),
        ("serving", falaj_serving::MIGRATIONS),
        ("catalog", falaj_catalog::MIGRATIONS),
        ("features", falaj_features::MIGRATIONS),
        ("training", falaj_training::MIGRATIONS),
    ]);
    all
}

/// Everything that can be done, by anyone.
#[must_use]
pub fn actions() -> Vec<&'static Action> {
    [
        http::ACTIONS,
        tenancy::ACTIONS,
        residency::ACTIONS,
        identity::ACTIONS,
        authz::ACTIONS,
        audit::ACTIONS,
        keyring::ACTIONS,
        events::ACTIONS,
        objects::ACTIONS,
        falaj_tracking::ACTIONS,
        falaj_registry::ACTIONS,
        falaj_traces::ACTIONS,
        falaj_serving::ACTIONS,
        falaj_serving::predictions::ACTIONS,
        falaj_catalog::ACTIONS,
        falaj_features::ACTIONS,
        falaj_training::ACTIONS,
        backup::ACTIONS,
    ]
    .concat()
}

/// The modules over the opened services; the server's own is added where the router is built.
#[must_use]
pub fn modules(services: &Services, config: &Config) -> Vec<Module> {
    vec![
        the_store(services),
        Module::new("tenancy")
            .actions(tenancy::ACTIONS)
            .routes(tenancy::routes(Arc::new(services.tenancy.clone()))),
        Module::new("residency")
            .actions(residency::ACTIONS)
            .routes(residency::routes(Arc::new(services.residency.clone()))),
        the_identity(services),
        the_authz(services, config),
        the_audit(services),
        the_keyring(services),
        the_events(services, config),
        the_objects(services),
        falaj_tracking::module(&services.tracking, &services.places, &services.artifact_urls),
        falaj_registry::module(&services.registry, &services.places),
        falaj_traces::module(&services.traces, &services.places),
        falaj_graphql::module(&services.registry, &services.places),
        falaj_serving::module(&services.serving, &services.places),
        falaj_catalog::module(&services.datasets, &services.places),
        falaj_features::module(&services.features, &services.places),
        falaj_training::module(&services.training, &services.places),
        the_backup(services, config),
    ]
}

/// What keeps the floor itself tidy; it has no routes.
fn the_store(s: &Services) -> Module {
    Module::new("store")
        .worker(idempotency::forgetter(s.db.clone()))
        .worker(s.epoch.poller("epoch-poll"))
}

fn the_identity(s: &Services) -> Module {
    let service = Identity::new(s.authenticator.clone());
    let module = Module::new("identity").actions(identity::ACTIONS);
    with_workers(
        module.routes(identity::routes(Arc::new(service))),
        identity::workers(&s.authenticator),
    )
}

fn the_authz(s: &Services, config: &Config) -> Module {
    let service = Authz::new(s.db.clone(), s.epoch.clone(), s.gate.clone(), config.authz.clone());
    Module::new("authz")
        .actions(authz::ACTIONS)
        .routes(authz::routes(Arc::new(service)))
        .worker(s.gate.refresher())
}

fn the_audit(s: &Services) -> Module {
    let module = Module::new("audit").actions(audit::ACTIONS);
    with_workers(module.routes(audit::routes(s.audit.clone())), s.audit.workers())
}

fn the_keyring(s: &Services) -> Module {
    let service = Keyring::new(s.db.clone(), s.keys.clone(), s.tenancy.clone());
    let module = Module::new("keyring").actions(keyring::ACTIONS);
    with_workers(module.routes(keyring::routes(Arc::new(service))), s.keys.workers())
}

fn the_events(s: &Services, config: &Config) -> Module {
    let service = Events::new(s.db.clone(), s.tenancy.clone(), s.epoch.clone(), &config.events);
    let trimmer = service.trimmer();
    Module::new("events")
        .actions(events::ACTIONS)
        .routes(events::routes(Arc::new(service)))
        .worker(trimmer)
}

fn the_objects(s: &Services) -> Module {
    let reads = s.audit.reads().clone();
    let service = ObjectService::new(s.db.clone(), s.objects.clone(), s.tenancy.clone(), reads);
    s.features.connect(s.tenancy.clone(), Arc::new(service.clone()));
    s.features.connect_datasets(s.datasets.clone());
    s.features.connect_runs(Arc::new(DatasetRuns(s.tracking.clone(), s.registry.clone())));
    let module = Module::new("objects").actions(objects::ACTIONS);
    with_workers(module.routes(objects::routes(Arc::new(service))), s.objects.workers())
}

fn the_backup(s: &Services, config: &Config) -> Module {
    let service = Backups {
        db: s.db.clone(),
        keys: s.keys.clone(),
        objects: s.objects.clone(),
        audit: s.audit.clone(),
        folder: config.data_dir.clone(),
        running: Arc::new(Semaphore::new(1)),
    };
    Module::new("backup").actions(backup::ACTIONS).routes(backup::routes(Arc::new(service)))
}

fn with_workers(module: Module, workers: Vec<Worker>) -> Module {
    workers.into_iter().fold(module, Module::worker)
}
