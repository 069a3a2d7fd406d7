//! A loaded model.

use falaj_base::{Error, Result};
use falaj_inference::{Metadata, Session, run};

use super::ask::{Answer, Ask, Times};
use super::key::ModelKey;
use super::settings::Settings;
use super::statistics::Statistics;

/// A model that is loaded and answers. Whoever holds it keeps it loaded.
#[derive(Debug)]
pub struct Model {
    key: ModelKey,
    metadata: Metadata,
    engine: &'static str,
    settings: Settings,
    session: std::sync::Mutex<Box<dyn Session>>,
}

impl Model {
    pub(super) fn new(key: ModelKey, settings: Settings, session: Box<dyn Session>) -> Self {
        let (metadata, engine) = (session.metadata().clone(), session.engine());
        Self { key, metadata, engine, settings, session: session.into() }
    }

    #[must_use]
    pub fn key(&self) -> &ModelKey {
        &self.key
    }

    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The name of the engine that computes it.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        self.engine
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether requests may share a run of it.
    #[must_use]
    pub fn batches(&self) -> bool {
        false
    }

    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Asks the model. Dropping the future gives up its place; a deadline that passes ends it at
    /// once with `deadline-exceeded`; a queue that is full, or too long for the deadline, refuses
    /// with `overloaded` and says when to come again.
    #[allow(clippy::unused_async, reason = "requests will wait here")]
    pub async fn infer(&self, ask: Ask) -> Result<Answer> {
        let mut session = self.session.lock().map_err(|_| Error::internal("poisoned"))?;
        let outputs = run(&mut **session, &ask.inputs, &ask.outputs)?;
        Ok(Answer { outputs, times: Times::default() })
    }
}
