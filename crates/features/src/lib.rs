//! Features: what a model is told about the world, as it was known at a moment.
//!
//! | module | holds |
//! |---|---|
//! | [`definition`] | entities, sources, feature views, services; versions and their hashes |
//! | [`history`] | pushed rows: the log, and the files that it is gathered into |
//! | [`knowledge`] | freshness, statistics, lineage, and whether both stores say the same |
//! | [`online`] | the latest values |
//! | [`erase`] | erasing the rows of one entity |
//! | `feast` | Feast's routes |
//! | [`offline`] | joining histories to moments, in Arrow |
//! | [`source`] | where the rows of views lie, and reading them |
//! | [`stream`] | records of Kafka and NATS as pushed rows |
//! | [`training`] | training sets: asked for, made, kept |
//! | [`transform`] | features that are computed: SQL, windows, on demand |
//! | `flight` | training sets over Arrow Flight |
//! | `grpc` | the latest values over gRPC |
//!
//! Must hold:
//! - A row of a training set says what was known at its moment and nothing that became known later;
//!   every row that was asked about is answered, in the order it was asked.
//! - What decides a number is a version, and a version never changes.
//! - Everything belongs to a project and is authorised by its name there.

mod actions;
mod budget;
pub mod config;
pub mod definition;
pub mod erase;
mod feast;
mod flight;
mod grpc;
pub mod history;
mod id;
pub mod knowledge;
pub mod name;
pub mod offline;
pub mod online;
pub mod reference;
pub mod schema;
pub mod source;
pub mod stream;
pub mod training;
pub mod transform;
mod turns;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use falaj_base::{Error, ProjectId, Result};
use falaj_catalog::Datasets;
use falaj_governance::audit::{ReadLog, Tally};
use falaj_governance::tenancy::Tenancy;
use falaj_mlflow::Places;
use falaj_store::db::{Db, Migration};
use falaj_store::lease::Leases;
use falaj_store::objects::Objects;
use falaj_web::Module;

pub use actions::{
    ACTIONS, FEATURE_APPLY, FEATURE_ERASE, FEATURE_ONLINE, FEATURE_QUARANTINE, FEATURE_READ,
    FEATURE_WRITE, TRAINING_SET_CREATE, TRAINING_SET_READ,
};
use budget::Budget;
pub use config::FeaturesConfig;
use definition::Catalog;
use definition::catalog::Catalogs;
use online::{Shelf, Underway};
use stream::Streams;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "definitions", sql: definition::store::SCHEMA },
    Migration { version: 2, name: "history", sql: history::log::SCHEMA },
    Migration { version: 3, name: "training sets", sql: training::store::SCHEMA },
    Migration { version: 4, name: "materialized", sql: MATERIALIZED },
    Migration { version: 5, name: "streams", sql: stream::store::SCHEMA },
    Migration { version: 6, name: "versions that share rows", sql: definition::store::SHARED },
    Migration { version: 7, name: "how far the log was trimmed", sql: history::log::TRIMMED },
    Migration { version: 8, name: "homes of online stores", sql: history::HOME },
    Migration { version: 9, name: "jobs", sql: online::materialize::SCHEMA },
    Migration { version: 10, name: "erasures", sql: erase::store::SCHEMA },
    Migration { version: 11, name: "knowledge", sql: knowledge::store::SCHEMA },
    Migration { version: 12, name: "erased training sets", sql: training::store::ERASED },
    Migration { version: 13, name: "comparisons of both stores", sql: knowledge::watch::SCHEMA },
    Migration { version: 14, name: "sets an erasure looked through", sql: erase::store::LOOKED },
];

/// How far views were brought, before that was told of each store.
const MATERIALIZED: &str = "
    CREATE TABLE feature_materialized (
        view INTEGER PRIMARY KEY, until INTEGER NOT NULL, rows INTEGER NOT NULL,
        at INTEGER NOT NULL);";

/// The features service. Cheap to clone.
#[derive(Clone)]
pub struct Features(Arc<Inner>);

struct Inner {
    config: FeaturesConfig,
    db: Db,
    objects: Objects,
    reads: ReadLog,
    catalogs: Catalogs,
    roots: source::Roots,
    shelf: Shelf,
    tally: Tally,
    underway: Underway,
    push_memory: Budget,
    exchange_memory: Budget,
    training: training::Signals,
    streams: Streams,
    ages: knowledge::metrics::Ages,
    skews: knowledge::metrics::Skews,
    looking: knowledge::Looking,
    around: OnceLock<Around>,
    datasets: OnceLock<Datasets>,
    runs: OnceLock<Arc<dyn knowledge::RunsOfDatasets>>,
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
        let shelf = Shelf::new(config.online.clone(), db.clone(), objects.clone(), data_dir);
        let push_memory = Budget::new(config.push_memory, "features.push_memory");
        let exchange_memory = Budget::new(config.memory, "features.memory");
        let underway = Underway::new(config.at_once);
        let tally = Tally::new(&FEATURE_ONLINE, reads.clone());
        let streams = Streams::new(config.max_stream_partitions);
        let looking = knowledge::Looking::new(config.at_once);
        let (training, around) = (training::Signals::default(), OnceLock::new());
        Self(Arc::new(Inner {
            config,
            db,
            objects,
            reads,
            catalogs,
            roots: source::Roots::default(),
            shelf,
            tally,
            underway,
            push_memory,
            exchange_memory,
            training,
            streams,
            ages: knowledge::metrics::Ages::default(),
            skews: knowledge::metrics::Skews::default(),
            looking,
            around,
            datasets: OnceLock::new(),
            runs: OnceLock::new(),
        }))
    }

    /// Tells what stands around this domain; once, before it is used.
    pub fn connect(&self, tenancy: Tenancy, objects: Arc<dyn source::ProjectObjects>) {
        drop(self.0.around.set(Around { tenancy, objects }));
    }

    /// Tells where datasets are, which sources may name and training sets may become.
    pub fn connect_datasets(&self, datasets: Datasets) {
        drop(self.0.datasets.set(datasets));
    }

    /// Tells where runs are found by what they logged as their inputs.
    pub fn connect_runs(&self, runs: Arc<dyn knowledge::RunsOfDatasets>) {
        drop(self.0.runs.set(runs));
    }

    pub(crate) fn datasets(&self) -> Result<&Datasets> {
        self.0.datasets.get().ok_or_else(|| Error::internal("datasets were not connected"))
    }

    pub(crate) fn datasets_if_any(&self) -> Option<&Datasets> {
        self.0.datasets.get()
    }

    pub(crate) fn runs_of_datasets(&self) -> Option<&dyn knowledge::RunsOfDatasets> {
        self.0.runs.get().map(|runs| &**runs)
    }

    /// How many histories are read to learn something about them.
    pub(crate) fn looking(&self) -> &knowledge::Looking {
        &self.0.looking
    }

    /// How fresh views were when they were last looked at.
    pub(crate) fn ages(&self) -> &knowledge::metrics::Ages {
        &self.0.ages
    }

    /// What was found when both stores of views were last compared.
    pub(crate) fn skews(&self) -> &knowledge::metrics::Skews {
        &self.0.skews
    }

    /// Tells who this server is among those that share the database: it reads streams from then on.
    pub fn lead(&self, leases: Leases) {
        self.streams().lead(leases);
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    /// Ends reading streams, and lets others go on.
    pub async fn stop(&self) {
        self.streams().stop().await;
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

    pub(crate) fn roots(&self) -> &source::Roots {
        &self.0.roots
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.0.shelf
    }

    pub(crate) fn underway(&self) -> &Underway {
        &self.0.underway
    }

    /// Memory of pushes.
    pub(crate) fn push_memory(&self) -> &Budget {
        &self.0.push_memory
    }

    /// Memory of tables that come over Arrow Flight.
    pub(crate) fn exchange_memory(&self) -> &Budget {
        &self.0.exchange_memory
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
        .routes(stream::http::routes(service.clone(), places.clone()))
        .routes(flight::routes(service.clone(), places.clone()))
        .routes(online::http::routes(service.clone(), places.clone()))
        .routes(online::materialize::http::routes(service.clone(), places.clone()))
        .routes(grpc::routes(service.clone(), places.clone()))
        .routes(erase::http::routes(service.clone(), places.clone()))
        .routes(knowledge::http::routes(service.clone(), places.clone()))
        .routes(feast::routes(service, places.clone()))
        .worker(features.catalogs().epoch().poller("feature-epoch"))
        .worker(training::maker(features))
        .worker(stream::worker(features))
        .worker(history::folder(features))
        .worker(history::trimmer(features))
        .worker(features.shelf().worker())
        .worker(online::materialize::worker(features))
        .worker(erase::worker(features))
        .worker(knowledge::freshness::watcher(features))
        .worker(knowledge::watch::watcher(features))
        .worker(features.tally().worker("feature-tally"))
}
