//! Training: jobs that are submitted, scheduled, run somewhere, watched and metered.
//!
//! | module | holds |
//! |---|---|
//! | [`job`] | definitions, states, starts, decisions |
//! | [`queue`] | quotas: tenant → team → queue |
//! | [`pool`] | nodes, and the executors that reach them |
//! | `live` | the scheduler at work: what it is told, what it decides, what comes of it |
//! | `launch` | what each rank is told |
//! | [`checkpoint`] | what a job saved, and what it goes on from |
//! | [`log`] | output, followed and kept |
//! | [`cost`] | what was used and what it cost |
//! | [`autoscale`] | nodes that come and go |
//! | [`telemetry`] | what starts use, idle ones, what jobs should ask for |
//! | [`budget`] | what tenants and projects may spend |
//! | `tracked` | jobs as runs |
//! | `renew` | tokens of starts that go on |
//! | `judge` | whether a job could ever run |
//! | `server` | which of several servers this is |
//!
//! Must hold:
//! - A job belongs to a project and is authorised there; it runs in zones that residency rules allow
//!   for its project, checked when it is submitted and whenever it starts.
//! - What was submitted ends exactly once, whatever is killed on the way.
//!
//! Not here: who goes first (`scheduler`), processes (`executors`), runs (`tracking`).

mod actions;
pub mod autoscale;
pub mod budget;
pub mod checkpoint;
pub mod config;
pub mod cost;
pub mod job;
mod judge;
mod launch;
mod live;
pub mod log;
pub mod name;
pub mod pool;
pub mod queue;
mod renew;
mod secret;
mod server;
pub mod telemetry;
mod tracked;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use falaj_base::{Error, Name, ProjectId, Result, Timestamp};
use falaj_governance::identity::Authenticator;
use falaj_governance::tenancy::Tenancy;
use falaj_mlflow::Places;
use falaj_store::db::{Db, Migration};
use falaj_store::objects::Objects;
use falaj_tracking::Tracking;
use falaj_web::Module;

pub use actions::{
    ACTIONS, BUDGET_READ, BUDGET_WRITE, COST_READ, JOB_CANCEL, JOB_DELETE, JOB_LOSE, JOB_READ,
    JOB_REPORT, JOB_RUN, JOB_SUBMIT, NODE_WRITE, POOL_READ, POOL_USE, QUEUE_READ, QUEUE_WRITE,
    TENANT_BUDGET_WRITE, TENANT_QUOTA_WRITE,
};
pub use config::TrainingConfig;
use judge::Judge;
use live::Live;
pub use live::{Start, Why};
use pool::Pools;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "jobs", sql: job::store::SCHEMA },
    Migration { version: 2, name: "queues", sql: queue::store::SCHEMA },
    Migration { version: 3, name: "inbox", sql: live::inbox::SCHEMA },
    Migration { version: 4, name: "checkpoints", sql: checkpoint::store::SCHEMA },
    Migration { version: 5, name: "costs", sql: cost::INDEX },
    Migration { version: 6, name: "budgets", sql: budget::store::SCHEMA },
    Migration { version: 7, name: "deleted", sql: cost::kept::SCHEMA },
    Migration { version: 8, name: "servers", sql: job::store::SERVERS },
    Migration { version: 10, name: "telemetry", sql: telemetry::store::SCHEMA },
    Migration { version: 11, name: "nodes", sql: autoscale::store::SCHEMA },
    Migration { version: 12, name: "reclaims", sql: job::store::RECLAIMS },
    Migration { version: 13, name: "by-project", sql: telemetry::store::BY_PROJECT },
    Migration { version: 14, name: "used", sql: live::usage::SCHEMA },
    Migration { version: 15, name: "places", sql: live::inbox::PLACES },
    Migration { version: 16, name: "removed", sql: autoscale::store::REMOVED },
];

/// What the domain stands on.
#[derive(Clone, Debug)]
pub struct Floor {
    pub db: Db,
    pub objects: Objects,
    pub tracking: Tracking,
    pub tenancy: Tenancy,
    pub places: Places,
    /// Who gives jobs their tokens; without, they have none.
    pub authenticator: Option<Arc<Authenticator>>,
}

/// How jobs reach this server.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Without a slash at its end.
    pub url: String,
    /// The certificate that clients must trust, if the server made its own.
    pub certificate: Option<PathBuf>,
}

/// Tasks of projects that have not ended, and when they were counted.
type Counted = HashMap<ProjectId, (Timestamp, u64)>;
/// Hard budgets that projects live by, and when they were read.
type Afforded = HashMap<ProjectId, (Timestamp, Arc<Vec<budget::Budget>>)>;

/// The jobs of all projects. Cheap to clone.
#[derive(Clone)]
pub struct Training(Arc<Inner>);

struct Inner {
    config: TrainingConfig,
    floor: Floor,
    pools: Pools,
    folder: PathBuf,
    live: Live,
    judge: Mutex<Option<Judge>>,
    counted: Mutex<Counted>,
    /// What budgets said about submissions, and when.
    afforded: Mutex<Afforded>,
    /// Starts of which a large checkpoint is being checked.
    checking: Mutex<HashSet<name::StartId>>,
    /// Which server this is, once somebody asked.
    server: OnceLock<String>,
    /// How often starts report.
    reports: checkpoint::Reports,
    /// When runs without a job were last looked for.
    orphans_looked: Mutex<Option<Timestamp>>,
    reach: OnceLock<Reach>,
    board: telemetry::board::Board,
    /// Where nodes say that their ranks reach each other.
    addresses: Mutex<HashMap<(usize, String), String>>,
}

impl fmt::Debug for Training {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Training").finish_non_exhaustive()
    }
}

impl Training {
    /// With the pools of the configuration. What executors keep goes below `data_dir`; `home` is the
    /// zone of the platform itself, `installation` the id that all servers of one database have in common.
    pub fn open(
        config: TrainingConfig,
        floor: Floor,
        home: &Name,
        data_dir: &Path,
        installation: &str,
    ) -> Result<Self> {
        let pools = pool::from_config(&config, home, (data_dir, installation))?;
        Ok(Self::new(config, floor, pools, data_dir))
    }

    #[must_use]
    pub fn new(config: TrainingConfig, floor: Floor, pools: Pools, data_dir: &Path) -> Self {
        floor.tenancy.before_deleting("training", job::delete::forget_project);
        let reports = checkpoint::Reports::new(config.max_reports, floor.tracking.reads().clone());
        Self(Arc::new(Inner {
            config,
            floor,
            pools,
            folder: data_dir.join("training"),
            live: Live::default(),
            judge: Mutex::new(None),
            counted: Mutex::default(),
            afforded: Mutex::default(),
            checking: Mutex::default(),
            server: OnceLock::new(),
            reports,
            orphans_looked: Mutex::default(),
            reach: OnceLock::new(),
            board: telemetry::board::Board::default(),
            addresses: Mutex::default(),
        }))
    }

    /// Says where jobs reach this server. What the configuration says is stronger; the first one that
    /// is said stays.
    pub fn reached_at(&self, reach: Reach) {
        let url = self.config().server_url.clone().unwrap_or(reach.url);
        let url = url.trim_end_matches('/').to_owned();
        let _ = self.0.reach.set(Reach { url, ..reach });
    }

    #[must_use]
    pub fn config(&self) -> &TrainingConfig {
        &self.0.config
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        &self.0.floor.db
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.0.floor.objects
    }

    pub(crate) fn tracking(&self) -> &Tracking {
        &self.0.floor.tracking
    }

    pub(crate) fn tenancy(&self) -> &Tenancy {
        &self.0.floor.tenancy
    }

    pub(crate) fn places(&self) -> &Places {
        &self.0.floor.places
    }

    pub(crate) fn authenticator(&self) -> Option<&Arc<Authenticator>> {
        self.0.floor.authenticator.as_ref()
    }

    pub(crate) fn pool_list(&self) -> &Pools {
        &self.0.pools
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn judge(&self) -> &Mutex<Option<Judge>> {
        &self.0.judge
    }

    pub(crate) fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn afforded(&self) -> MutexGuard<'_, Afforded> {
        self.0.afforded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn checking(&self) -> MutexGuard<'_, HashSet<name::StartId>> {
        self.0.checking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn addresses(&self) -> MutexGuard<'_, HashMap<(usize, String), String>> {
        self.0.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn board(&self) -> &telemetry::board::Board {
        &self.0.board
    }

    /// Says where readings of GPUs come from, in place of the machine's own library.
    pub fn reads_gpus_from(&self, gpus: Arc<dyn falaj_executors::gpu::Gpus>) {
        self.board().read_from(Some(gpus));
    }

    pub(crate) fn orphans_looked(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.0.orphans_looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reports(&self) -> &checkpoint::Reports {
        &self.0.reports
    }

    /// Which server this is: the same at every start from its data folder.
    pub(crate) fn server_id(&self) -> Result<&str> {
        if let Some(known) = self.0.server.get() {
            return Ok(known);
        }
        let found = server::id_in(&self.0.folder)?;
        Ok(self.0.server.get_or_init(|| found))
    }

    pub(crate) fn reach(&self) -> Option<&Reach> {
        self.0.reach.get()
    }

    /// Where jobs save their work that name no folder for it.
    pub(crate) fn own_checkpoints(&self) -> PathBuf {
        self.0.folder.join("checkpoints")
    }

    pub(crate) fn downgrade(&self) -> WeakTraining {
        WeakTraining(Arc::downgrade(&self.0))
    }
}

/// Does not keep the service alive.
pub(crate) struct WeakTraining(Weak<Inner>);

impl WeakTraining {
    pub(crate) fn upgrade(&self) -> Option<Training> {
        self.0.upgrade().map(Training)
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(training: &Training, places: &Places) -> Module {
    let service = Arc::new(training.clone());
    Module::new("training")
        .actions(ACTIONS)
        .routes(job::http::routes(service.clone(), places.clone()))
        .routes(log::http::routes(service.clone(), places.clone()))
        .routes(checkpoint::http::routes(service.clone(), places.clone()))
        .routes(queue::http::routes(service.clone(), places.clone()))
        .routes(pool::http::routes(service.clone(), places.clone()))
        .routes(cost::http::routes(service.clone(), places.clone()))
        .routes(telemetry::http::routes(service.clone(), places.clone()))
        .routes(autoscale::http::routes(service.clone(), places.clone()))
        .routes(budget::http::routes(service, places.clone()))
        .worker(live::worker(training))
        .worker(live::forgetter(training))
        .worker(telemetry::forgetter(training))
        .worker(renew::worker(training))
        .worker(job::delete::worker(training))
        .worker(job::delete::clearer(training))
        .worker(training.reports().tally().worker("training-reports"))
}

/// Runs work that may block where it may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
