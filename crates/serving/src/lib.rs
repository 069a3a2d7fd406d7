//! Serving: registered models answer requests, over REST and gRPC, in the Open Inference Protocol.
//!
//! | module | holds |
//! |---|---|
//! | [`profile`] | what is known about serving a version: can it, how does it answer |
//! | [`endpoint`] | names under which models answer, and what they run |
//! | [`traffic`] | which variant answers: pure decisions |
//! | [`rollout`] | those decisions at work: canaries, tests, bandits, shadows |
//! | [`runtime`] | running models: instances, batches, queues, memory |
//! | [`oip`] | the protocol's calls, over REST and gRPC |
//! | [`edge`] | the same protocol from a folder of models, without a database |
//! | [`remote`] | models that another server computes |
//! | [`predictions`] | what was predicted, kept for later |
//! | [`later`] | requests that are taken now and answered later |
//!
//! Must hold:
//! - An endpoint belongs to a project and is authorised by its name there, request by request. One
//!   of another project reads exactly like one that does not exist.
//! - Only versions whose signature is valid are loaded, and only those that answer as they did when
//!   they were registered.
//! - Every answer says which version gave it, and under which variant.
//!
//! Not here: what a model is (`registry`), computing (`inference`), the protocol's bytes (`oip`).

mod actions;
mod chance;
pub mod config;
pub mod edge;
pub mod endpoint;
pub mod later;
mod live;
mod metrics;
pub mod oip;
pub mod predictions;
pub mod profile;
mod rate;
pub mod remote;
pub mod rollout;
pub mod runtime;
mod schema;
mod source;
pub mod traffic;

use std::fmt;
use std::sync::Arc;

use falaj_base::Result;
use falaj_governance::audit::Tally;
use falaj_governance::epoch::Epoch;
use falaj_inference::Engines;
use falaj_inference::runtime::{OnnxRuntime, Search};
use falaj_mlflow::Places;
use falaj_registry::Registry;
use falaj_store::db::Db;
use falaj_web::Module;
use tokio::sync::Semaphore;

pub use actions::{ACTIONS, ENDPOINT_DELETE, ENDPOINT_PREDICT, ENDPOINT_READ, ENDPOINT_WRITE};
pub use config::ServingConfig;
pub use metrics::ServingCollector;
pub use rate::Rate;
pub use schema::MIGRATIONS;

use later::Later;
use live::Live;
use predictions::Predictions;
use runtime::Fleet;
use source::Registered;

/// How many models are tried at a time when they are registered.
const TRIALS: usize = 1;

/// The serving service. Cheap to clone.
#[derive(Clone)]
pub struct Serving(Arc<Inner>);

struct Inner {
    config: ServingConfig,
    registry: Registry,
    engines: Arc<Engines>,
    fleet: Fleet,
    epoch: Epoch,
    live: Live,
    tally: Tally,
    predictions: Predictions,
    later: Later,
    rates: rate::Rates,
    trials: Semaphore,
    held_back: endpoint::HeldBack,
    watch: rollout::Watch,
    tensors: falaj_oip::Limits,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Serving {
    /// Finds the engines of this machine. A library that was named must be there and load.
    pub fn new(
        config: ServingConfig,
        registry: Registry,
        data_dir: Option<std::path::PathBuf>,
    ) -> Result<Self> {
        let found = OnnxRuntime::find(&Search::here(config.onnxruntime.clone(), data_dir))?;
        let engines = Arc::new(Engines::new(found));
        registry.set_users(Arc::new(endpoint::Endpoints));
        let source = Arc::new(Registered::new(registry.clone(), &config));
        Ok(Self(Arc::new(Inner {
            fleet: Fleet::with_engine(config.fleet(), source, engines.clone()),
            epoch: Epoch::of_row(registry.db().clone(), endpoint::store::EPOCH),
            live: Live::default(),
            tally: Tally::new(&ENDPOINT_PREDICT, registry.tracking().reads().clone()),
            predictions: Predictions::start(
                config.predictions.clone(),
                registry.db().clone(),
                registry.tracking().objects().clone(),
                registry.tracking().reads().clone(),
            ),
            later: Later::new(&config.later),
            rates: rate::Rates::default(),
            trials: Semaphore::new(TRIALS),
            held_back: endpoint::HeldBack::default(),
            watch: rollout::Watch::default(),
            tensors: config.tensor_limits(),
            engines,
            config,
            registry,
        })))
    }

    #[must_use]
    pub fn config(&self) -> &ServingConfig {
        &self.0.config
    }

    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        self.0.registry.db()
    }

    /// The models that are loaded here.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.0.fleet
    }

    pub(crate) fn epoch(&self) -> &Epoch {
        &self.0.epoch
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// How much one request may hold.
    pub(crate) fn tensor_limits(&self) -> &falaj_oip::Limits {
        &self.0.tensors
    }

    /// What was predicted.
    #[must_use]
    pub fn predictions(&self) -> &Predictions {
        &self.0.predictions
    }

    /// What this server runs of the requests that are answered later.
    pub(crate) fn later(&self) -> &Later {
        &self.0.later
    }

    /// How often callers asked the endpoints that limit them.
    pub(crate) fn rates(&self) -> &rate::Rates {
        &self.0.rates
    }

    pub(crate) fn held_back(&self) -> &endpoint::HeldBack {
        &self.0.held_back
    }

    /// What is watched of endpoints whose traffic finds its own way.
    pub(crate) fn watch(&self) -> &rollout::Watch {
        &self.0.watch
    }

    pub(crate) fn engines(&self) -> &Engines {
        &self.0.engines
    }

    /// What is still in memory and must not be lost.
    pub async fn flush(&self) {
        self.stop_later().await;
        self.0.tally.flush();
        self.0.predictions.log().flush().await;
        if let Err(error) = self.tell_traffic().await {
            tracing::warn!(error = error.chain(), "what was seen of traffic is lost");
        }
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(serving: &Serving, places: &Places) -> Module {
    let service = Arc::new(serving.clone());
    Module::new("serving")
        .actions(ACTIONS)
        .actions(predictions::ACTIONS)
        .routes(profile::http::routes(service.clone()))
        .routes(endpoint::http::routes(service.clone()))
        .routes(predictions::http::routes(service.clone()))
        .routes(later::http::routes(service.clone()))
        .routes(rollout::http::routes(service.clone()))
        .routes(oip::platform::routes(&service, places))
        .worker(profile::worker(serving))
        .worker(endpoint::follower(serving))
        .worker(serving.epoch().poller("endpoint-epoch"))
        .worker(serving.tally().worker("prediction-tally"))
        .worker(serving.traffic_teller())
        .worker(rollout::judge(serving))
        .worker(predictions::expirer(serving.predictions()))
        .worker(later::worker(serving))
        .worker(later::sweeper(serving))
}
