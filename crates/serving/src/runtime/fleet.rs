//! Every loaded model, and the memory they share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result};
use falaj_inference::runtime::OnnxRuntime;
use falaj_inference::{Engine, ModelFile, Session, choose};

use super::ask::{Answer, Ask};
use super::key::ModelKey;
use super::model::Model;
use super::settings::FleetConfig;
use super::source::{Content, Source};

/// Every loaded model. Cheap to clone: all clones are the same fleet.
#[derive(Clone)]
pub struct Fleet(Arc<Shared>);

struct Shared {
    config: FleetConfig,
    source: Arc<dyn Source>,
    engine: Arc<dyn Engine>,
    models: Mutex<HashMap<ModelKey, Arc<Model>>>,
}

/// A model of the fleet, as lists show it.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub key: ModelKey,
    pub state: LoadState,
    /// The bytes it is counted with.
    pub bytes: u64,
    /// How long nobody has asked for it.
    pub idle: Duration,
}

#[derive(Clone, Debug)]
pub enum LoadState {
    Loading,
    Ready(Arc<Model>),
    /// Why it could not be loaded; tried again in a short time.
    Failed(String),
}

impl Fleet {
    #[must_use]
    pub fn new(config: FleetConfig, source: Arc<dyn Source>, runtime: Option<OnnxRuntime>) -> Self {
        Self::with_engine(config, source, Arc::new(Choosing(runtime)))
    }

    /// A fleet whose models one engine computes.
    #[must_use]
    pub fn with_engine(
        config: FleetConfig,
        source: Arc<dyn Source>,
        engine: Arc<dyn Engine>,
    ) -> Self {
        Self(Arc::new(Shared { config, source, engine, models: Mutex::default() }))
    }

    /// The model that a key stands for, loaded if it is not: by one flight, however many wait. It
    /// is seen only after it gave its golden outputs and was warmed up.
    pub async fn model(&self, key: &ModelKey) -> Result<Arc<Model>> {
        if let Some(model) = self.ready(key) {
            return Ok(model);
        }
        let fetched = self.0.source.fetch(key).await?;
        let Content::File(bytes) = fetched.model else {
            return Err(Error::invalid("model", "remote", "a file"));
        };
        let session = self.0.engine.load(&ModelFile::read(bytes, &self.0.config.limits)?)?;
        let model = Arc::new(Model::new(key.clone(), fetched.settings, session));
        self.models().insert(key.clone(), Arc::clone(&model));
        Ok(model)
    }

    /// Asks the model that a key stands for, loading it if need be.
    pub async fn infer(&self, key: &ModelKey, ask: Ask) -> Result<Answer> {
        self.model(key).await?.infer(ask).await
    }

    /// The model if it is loaded; counts as use of it.
    #[must_use]
    pub fn ready(&self, key: &ModelKey) -> Option<Arc<Model>> {
        self.models().get(key).cloned()
    }

    /// Every model that is loaded, loading, or failed a short time ago.
    #[must_use]
    pub fn loaded(&self) -> Vec<Loaded> {
        let models = self.models();
        let show = |(key, model): (&ModelKey, &Arc<Model>)| Loaded {
            key: key.clone(),
            state: LoadState::Ready(Arc::clone(model)),
            bytes: 0,
            idle: Instant::now().elapsed(),
        };
        models.iter().map(show).collect()
    }

    /// Unloads a model: nobody finds it any more, those who have it finish. Says whether it was
    /// there. Returns when its memory is free, or when those who use it took too long: their next
    /// questions are then refused.
    #[allow(clippy::unused_async, reason = "it will wait for those who use it")]
    pub async fn unload(&self, key: &ModelKey) -> bool {
        self.models().remove(key).is_some()
    }

    fn models(&self) -> std::sync::MutexGuard<'_, HashMap<ModelKey, Arc<Model>>> {
        self.0.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// The engine that suits each model.
#[derive(Debug)]
struct Choosing(Option<OnnxRuntime>);

impl Engine for Choosing {
    fn name(&self) -> &'static str {
        "choosing"
    }

    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>> {
        choose(model, self.0.as_ref())
    }
}
