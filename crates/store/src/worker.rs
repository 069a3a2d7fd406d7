//! Background work: idempotent reconcilers without input, woken by a timer or a signal.
//!
//! Must hold: a worker can be stopped anywhere and run again with the same result. The server's
//! driver runs each under a lease, so that of several servers one does the work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use falaj_base::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;

/// One kind of background work.
#[derive(Clone)]
pub struct Worker {
    pub name: &'static str,
    /// The longest pause between two runs.
    pub every: Duration,
    /// Wakes the worker before its time.
    pub wake: Option<Arc<Notify>>,
    /// Whether each server runs it for itself, without a lease.
    pub everywhere: bool,
    run: Arc<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>,
}

impl Worker {
    pub fn new<F, R>(name: &'static str, every: Duration, run: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<()>> + Send + 'static,
    {
        Self { name, every, wake: None, everywhere: false, run: Arc::new(move || run().boxed()) }
    }

    #[must_use]
    pub fn woken_by(mut self, signal: Arc<Notify>) -> Self {
        self.wake = Some(signal);
        self
    }

    #[must_use]
    pub fn on_every_server(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// Brings the world to where it should be, once.
    pub async fn run(&self) -> Result<()> {
        (self.run)().await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
