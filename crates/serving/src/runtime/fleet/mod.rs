//! Every loaded model, and the memory they share.
//!
//! What must hold: a key is loaded by one flight at a time; a model is found only after it gave its
//! golden outputs and was warmed up; one that somebody holds is not unloaded to make room, and
//! stays whole for whoever holds it.

mod flight;
mod load;
mod memory;
mod prepare;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result};
use falaj_inference::runtime::OnnxRuntime;
use falaj_inference::{Engine, Engines};
use tokio::sync::Semaphore;

use super::ask::{Answer, Ask};
use super::cache::Cache;
use super::key::ModelKey;
use super::model::Model;
use super::room::Room;
use super::settings::FleetConfig;
use super::source::Source;
use flight::{Flight, again};

/// Every loaded model. Cheap to clone: all clones are the same fleet.
#[derive(Clone)]
pub struct Fleet(Arc<Shared>);

struct Shared {
    config: FleetConfig,
    source: Arc<dyn Source>,
    engine: Arc<dyn Engine>,
    models: RwLock<HashMap<ModelKey, Slot>>,
    loads: Semaphore,
    memory: Arc<Room>,
    queue_room: Arc<Room>,
    cache: Arc<Cache>,
    /// Whether somebody unloads idle models.
    swept: AtomicBool,
}

enum Slot {
    Loading(Flight),
    Ready(Arc<Model>),
    Failed { error: Arc<Error>, until: Instant },
}

/// A model of the fleet, as lists show it.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub key: ModelKey,
    pub state: LoadState,
}

#[derive(Clone, Debug)]
pub enum LoadState {
    Loading,
    /// Loaded, and for how long nobody has asked for it.
    Ready {
        model: Arc<Model>,
        idle: Duration,
    },
    /// Why it could not be loaded. It is tried again in a short time, if somebody asks.
    Failed(String),
}

impl Fleet {
    #[must_use]
    pub fn new(config: FleetConfig, source: Arc<dyn Source>, runtime: Option<OnnxRuntime>) -> Self {
        Self::with_engine(config, source, Arc::new(Engines::new(runtime)))
    }

    /// A fleet whose models one engine computes.
    #[must_use]
    pub fn with_engine(
        config: FleetConfig,
        source: Arc<dyn Source>,
        engine: Arc<dyn Engine>,
    ) -> Self {
        Self(Arc::new(Shared {
            source,
            engine,
            models: RwLock::default(),
            loads: Semaphore::new(config.loads.clamp(1, 1024)),
            memory: Room::new(usize::try_from(config.memory).unwrap_or(usize::MAX)),
            queue_room: Room::new(config.queue_bytes),
            cache: Arc::new(Cache::new(config.cache_bytes)),
            swept: AtomicBool::new(false),
            config,
        }))
    }

    /// The model that a key stands for, loaded if it is not: by one flight, however many wait. It
    /// is seen only after it gave its golden outputs and was warmed up.
    pub async fn model(&self, key: &ModelKey) -> Result<Arc<Model>> {
        if let Some(model) = self.ready(key) {
            return Ok(model);
        }
        // Apart, so that the usual way carries no room for the long one.
        let model = Box::pin(self.flight(key)?.land()).await?;
        model.touch();
        Ok(model)
    }

    /// Asks the model that a key stands for, loading it if need be.
    pub async fn infer(&self, key: &ModelKey, ask: Ask) -> Result<Answer> {
        self.model(key).await?.infer(ask).await
    }

    /// The model if it is loaded; counts as use of it.
    #[must_use]
    pub fn ready(&self, key: &ModelKey) -> Option<Arc<Model>> {
        match self.0.models.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            Some(Slot::Ready(model)) => {
                model.touch();
                Some(Arc::clone(model))
            }
            _ => None,
        }
    }

    /// Every model that is loaded, loading, or failed a short time ago.
    #[must_use]
    pub fn loaded(&self) -> Vec<Loaded> {
        let models = self.0.models.read().unwrap_or_else(PoisonError::into_inner);
        let show = |(key, slot): (&ModelKey, &Slot)| {
            let state = match slot {
                Slot::Loading(_) => LoadState::Loading,
                Slot::Ready(model) => {
                    LoadState::Ready { model: Arc::clone(model), idle: model.last_used().elapsed() }
                }
                Slot::Failed { error, .. } => LoadState::Failed(error.message().to_owned()),
            };
            Loaded { key: key.clone(), state }
        };
        models.iter().map(show).collect()
    }

    /// The bytes that loaded models are counted with, and the most that they may be.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        (self.0.memory.used() as u64, self.0.memory.limit() as u64)
    }

    /// Unloads a model: nobody finds it any more, those who have it finish. Says whether it was
    /// loaded. Returns when its memory is free, or when those who hold it took too long: their next
    /// questions are refused then.
    pub async fn unload(&self, key: &ModelKey) -> bool {
        let slot = self.0.write().remove(key);
        let model = match slot {
            Some(Slot::Ready(model)) => model,
            Some(Slot::Loading(_)) => return true,
            Some(Slot::Failed { .. }) | None => return false,
        };
        let (mut gone, held) = (model.gone(), Arc::downgrade(&model));
        memory::let_go(vec![model]).await;
        if tokio::time::timeout(self.0.config.drain, gone.changed()).await.is_err()
            && let Some(model) = held.upgrade()
        {
            tracing::warn!(%key, "an unloaded model is still held; its next questions are refused");
            model.close();
        }
        true
    }

    /// The flight that loads a key: the one under way, or a new one.
    fn flight(&self, key: &ModelKey) -> Result<Flight> {
        let mut models = self.0.write();
        match models.get(key) {
            Some(Slot::Ready(model)) => return Ok(Flight::landed(Arc::clone(model))),
            Some(Slot::Loading(flight)) => return Ok(flight.clone()),
            Some(Slot::Failed { error, until }) if Instant::now() < *until => {
                return Err(again(error));
            }
            Some(Slot::Failed { .. }) | None => {}
        }
        let now = Instant::now();
        models.retain(|_, slot| !matches!(slot, Slot::Failed { until, .. } if *until <= now));
        let flight = Flight::start(&self.0, key);
        models.insert(key.clone(), Slot::Loading(flight.clone()));
        Ok(flight)
    }
}

impl Shared {
    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<ModelKey, Slot>> {
        self.models.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("config", &self.0.config).finish_non_exhaustive()
    }
}
