//! A loaded model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result};
use falaj_inference::Metadata;
use tokio::sync::watch;

use super::ask::{Answer, Ask, Priority, Times};
use super::cache::{Cache, Question};
use super::instances::{Instances, Way};
use super::job::{Computed, Job};
use super::key::ModelKey;
use super::meter::Meter;
use super::remote::Remote;
use super::settings::Settings;
use super::statistics::Statistics;

/// A model that is loaded and answers. Whoever holds it keeps it loaded.
#[derive(Debug)]
pub struct Model {
    key: ModelKey,
    metadata: Metadata,
    engine: &'static str,
    settings: Settings,
    meter: Arc<Meter>,
    cache: Option<Arc<Cache>>,
    runner: Runner,
    loaded: Instant,
    /// When it was last asked for, in milliseconds since it was loaded.
    used: AtomicU64,
}

/// Who computes.
#[derive(Debug)]
pub(super) enum Runner {
    Here(Arc<Instances>),
    There(Box<Remote>),
}

impl Runner {
    async fn compute(&self, job: Job) -> Result<Computed> {
        match self {
            Self::Here(instances) => {
                let way = instances.way(&job);
                if way == Way::Here
                    && let Some(session) = instances.take_at_once()
                {
                    return instances.compute_at_once(session, &job);
                }
                if way == Way::Elsewhere {
                    return instances.join(job)?.answer().await;
                }
                let (place, coming) = instances.join_company(job)?;
                // Whoever else arrived on this thread joins before one computes for all.
                tokio::task::yield_now().await;
                coming.compute();
                place.answer().await
            }
            Self::There(remote) => Box::pin(remote.compute(job)).await,
        }
    }
}

/// What a model is made of.
pub(super) struct Parts {
    pub key: ModelKey,
    pub metadata: Metadata,
    pub engine: &'static str,
    pub settings: Settings,
    pub meter: Arc<Meter>,
    pub cache: Option<Arc<Cache>>,
    pub runner: Runner,
}

impl Model {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let Parts { key, metadata, engine, settings, meter, cache, runner } = parts;
        let (loaded, used) = (Instant::now(), AtomicU64::new(0));
        Arc::new(Self { key, metadata, engine, settings, meter, cache, runner, loaded, used })
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
        match &self.runner {
            Runner::Here(instances) => instances.batching().is_some(),
            Runner::There(_) => false,
        }
    }

    /// How many requests are computed at a time; 0 if another server decides that.
    #[must_use]
    pub fn instances(&self) -> usize {
        match &self.runner {
            Runner::Here(instances) => instances.count(),
            Runner::There(_) => 0,
        }
    }

    /// The bytes it is counted with.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.runner {
            Runner::Here(instances) => instances.memory() as u64,
            Runner::There(_) => 0,
        }
    }

    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.meter.read();
        if let Runner::Here(instances) = &self.runner {
            (statistics.waiting, statistics.waiting_bytes) = instances.waiting();
        }
        statistics
    }

    /// Asks the model. Dropping the future gives up its place; a deadline that passes ends it at
    /// once with `deadline-exceeded`; a queue that is full, or too long for the deadline, refuses
    /// with `overloaded` and says when to come again.
    pub async fn infer(&self, ask: Ask) -> Result<Answer> {
        let started = Instant::now();
        let underway = self.meter.begin();
        let answer = self.answer(ask).await;
        match &answer {
            Ok(_) => underway.succeeded(started.elapsed()),
            Err(error) => underway.failed(started.elapsed(), error),
        }
        answer
    }

    /// The refusal that a request of this priority is going to meet, whatever else it says: so that it
    /// need not be read first. `sure` is asked before it counts as asked and refused.
    pub fn refusal(&self, priority: Priority, sure: impl FnOnce() -> bool) -> Option<Error> {
        let Runner::Here(instances) = &self.runner else { return None };
        // A kept answer needs no place in line.
        if self.cache.is_some() {
            return None;
        }
        let refusal = instances.refusal(priority).filter(|_| sure())?;
        self.meter.begin().failed(Duration::ZERO, &refusal);
        Some(refusal)
    }

    async fn answer(&self, ask: Ask) -> Result<Answer> {
        // Light models answer without waiting for anything: whoever asks in a loop must still let
        // others have the thread.
        tokio::task::consume_budget().await;
        let job = Job::new(ask, &self.metadata, self.settings.timeout)?;
        let Some(cache) = &self.cache else {
            let (outputs, times) = self.runner.compute(job).await?;
            return Ok(Answer { outputs, times });
        };
        let started = Instant::now();
        let question = Question::new(&self.key, &job.inputs, &job.outputs)?;
        if let Some(kept) = cache.find(&question) {
            let outputs = Arc::unwrap_or_clone(kept);
            self.meter.cache_hit.add(1, started.elapsed());
            return Ok(Answer { outputs, times: Times { cached: true, ..Times::default() } });
        }
        let looked = started.elapsed();
        let (outputs, times) = self.runner.compute(job).await?;
        let computed = Instant::now();
        cache.keep(question, &outputs);
        self.meter.cache_miss.add(1, looked + computed.elapsed());
        Ok(Answer { outputs, times })
    }

    /// Notes that it was asked for.
    pub(super) fn touch(&self) {
        let now = u64::try_from(self.loaded.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    /// When it was last asked for.
    pub(super) fn last_used(&self) -> Instant {
        self.loaded + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    /// Refuses whoever asks from now on.
    pub(super) fn close(&self) {
        match &self.runner {
            Runner::Here(instances) => instances.close(),
            Runner::There(remote) => remote.close(),
        }
    }

    /// Ends when the model and its memory are gone.
    pub(super) fn gone(&self) -> watch::Receiver<()> {
        match &self.runner {
            Runner::Here(instances) => instances.gone(),
            Runner::There(remote) => remote.gone(),
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.close();
    }
}
