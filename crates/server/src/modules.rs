//! The table of contents: every module of the system, with its tables, its actions and its work.

use std::sync::Arc;

use falaj_base::Action;
use falaj_governance::authz::Authz;
use falaj_governance::identity::Identity;
use falaj_governance::{audit, authz, epoch, identity, residency, tenancy};
use falaj_store::db::ModuleMigrations;
use falaj_store::record::idempotency;
use falaj_store::{keys, objects as blobs};
use falaj_web::Module;

use crate::config::Config;
use crate::events::{self, Events};
use crate::http;
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
        events::ACTIONS,
    ]
    .concat()
}

/// The modules over the opened services; the server's own is added where the router is built.
#[must_use]
pub fn modules(services: &Services, config: &Config) -> Vec<Module> {
    let s = services.clone();
    let identity = Identity::new(s.authenticator.clone());
    let authz = Authz::new(s.db.clone(), s.epoch.clone(), s.gate.clone(), config.authz.clone());
    let events = Events::new(s.db.clone(), s.tenancy.clone(), s.epoch.clone(), &config.events);
    let trimmer = events.trimmer();
    vec![
        Module::new("store").worker(idempotency::forgetter(s.db.clone())).worker(s.epoch.poller()),
        Module::new("tenancy")
            .actions(tenancy::ACTIONS)
            .routes(tenancy::routes(Arc::new(s.tenancy))),
        Module::new("residency")
            .actions(residency::ACTIONS)
            .routes(residency::routes(Arc::new(s.residency))),
        with_workers(
            Module::new("identity")
                .actions(identity::ACTIONS)
                .routes(identity::routes(Arc::new(identity))),
            identity::workers(&s.authenticator),
        ),
        Module::new("authz")
            .actions(authz::ACTIONS)
            .routes(authz::routes(Arc::new(authz)))
            .worker(s.gate.refresher()),
        with_workers(
            Module::new("audit").actions(audit::ACTIONS).routes(audit::routes(s.audit.clone())),
            s.audit.workers(),
        ),
        Module::new("events")
            .actions(events::ACTIONS)
            .routes(events::routes(Arc::new(events)))
            .worker(trimmer),
        with_workers(Module::new("keys"), s.keys.workers()),
        with_workers(Module::new("objects"), s.objects.workers()),
    ]
}

fn with_workers(module: Module, workers: Vec<falaj_store::worker::Worker>) -> Module {
    workers.into_iter().fold(module, Module::worker)
}
