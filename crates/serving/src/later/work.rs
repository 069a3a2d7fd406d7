//! What one server runs of the requests that wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falaj_base::{EndpointId, Result};
use falaj_store::worker::Worker;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::config::LaterConfig;
use super::places::Places;
use super::store;
use crate::Serving;

/// The longest pause between two looks at what waits: what another server took in, or what is due
/// again.
const EVERY: Duration = Duration::from_secs(1);

/// The work of this server. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Later(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wake: Arc<Notify>,
    /// Names this start of this server in its claims.
    holder: String,
    places: Mutex<Places>,
    tasks: Mutex<JoinSet<()>>,
    memory: Arc<Semaphore>,
    memory_units: u32,
    counts: Counting,
}

#[derive(Debug, Default)]
struct Counting {
    submitted: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    again: AtomicU64,
}

/// What became of requests on this server since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaterCounts {
    pub submitted: u64,
    pub done: u64,
    pub failed: u64,
    /// Attempts that are to be made again.
    pub again: u64,
    pub running: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Submitted,
    Done,
    Failed,
    Again,
}

/// Memory is given out in pieces of this size.
const UNIT: u64 = 64 << 10;
/// How many times its body a request takes: its tensors, and its answer.
const TIMES: u64 = 4;

impl Later {
    pub(crate) fn new(config: &LaterConfig) -> Self {
        let units = (config.memory.bytes() / UNIT).clamp(1, 1 << 24);
        let memory_units = u32::try_from(units).unwrap_or(1 << 24);
        Self(Arc::new(Inner {
            wake: Arc::default(),
            holder: Uuid::now_v7().to_string(),
            places: Mutex::new(Places::new(config.at_once)),
            tasks: Mutex::default(),
            memory: Arc::new(Semaphore::new(memory_units as usize)),
            memory_units,
            counts: Counting::default(),
        }))
    }

    pub(super) fn wake(&self) {
        self.0.wake.notify_one();
    }

    pub(super) fn holder(&self) -> &str {
        &self.0.holder
    }

    pub(super) fn places(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is memory for a body of this size; one that is larger than all of it runs
    /// alone.
    pub(super) async fn memory(&self, size: u64) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let units = u32::try_from((size * TIMES).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let units = units.clamp(1, self.0.memory_units);
        self.0.memory.clone().acquire_many_owned(units).await.ok()
    }

    pub(super) fn count(&self, what: Count) {
        let counts = &self.0.counts;
        let count = match what {
            Count::Submitted => &counts.submitted,
            Count::Done => &counts.done,
            Count::Failed => &counts.failed,
            Count::Again => &counts.again,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> LaterCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counting { submitted, done, failed, again } = &self.0.counts;
        LaterCounts {
            submitted: read(submitted),
            done: read(done),
            failed: read(failed),
            again: read(again),
            running: self.places().taken() as u64,
        }
    }

    /// Begins to run something at an endpoint, beside everything else.
    fn spawn(&self, endpoint: EndpointId, work: impl Future<Output = ()> + Send + 'static) {
        let place = Place { later: self.clone(), endpoint };
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _place = place;
            work.await;
        });
    }
}

/// A place that is taken until this is dropped, also by a panic.
struct Place {
    later: Later,
    endpoint: EndpointId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.later.places().leave(self.endpoint);
        self.later.wake();
    }
}

/// Runs what waits; on every server.
pub(crate) fn worker(serving: &Serving) -> Worker {
    let (signal, serving) = (serving.later().0.wake.clone(), serving.clone());
    Worker::new("later-requests", EVERY, move || {
        let serving = serving.clone();
        async move { serving.begin_due().await }
    })
    .on_every_server()
    .woken_by(signal)
}

impl Serving {
    /// Begins to run requests while there are places and requests. Each goes on by itself; where
    /// one ends, the worker is woken for the next.
    pub(crate) async fn begin_due(&self) -> Result<()> {
        while let Some(claimed) = self.claim_next().await? {
            let (serving, endpoint) = (self.clone(), claimed.of.endpoint);
            self.later().spawn(endpoint, async move { serving.run_claimed(claimed).await });
        }
        Ok(())
    }

    /// Stops running requests, so that other servers go on with them at once.
    pub(crate) async fn stop_later(&self) {
        let tasks = {
            let mut tasks = self.later().0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        if tasks.is_empty() {
            return;
        }
        let mut tasks = tasks;
        tasks.shutdown().await;
        let holder = self.later().holder().to_owned();
        if let Err(error) = self.db().write(move |tx| store::release(tx, &holder)).await {
            let error = error.chain();
            tracing::warn!(error, "requests that ran here wait until their claims end");
        }
    }
}
