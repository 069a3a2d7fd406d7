//! The signals that the server is stopping: first that it will, then that it does.
//!
//! Must hold: once draining, always draining. Everything that can wait for long (the accept loop,
//! an idle connection, an event stream, a worker) listens to the second signal; only readiness
//! changes with the first, so that whoever shares out requests stops sending them here while they
//! are still answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_web::Stopping;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Whoever asked for readiness within this long asks again before they send requests.
const WATCHING: Duration = Duration::from_mins(1);

/// Tells whether the server is stopping. Cheap to clone; also an extension of every request, so
/// that an endless response can end itself.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    announced: CancellationToken,
    started: CancellationToken,
    /// When somebody last asked whether the server is ready.
    asked: Arc<Mutex<Option<Instant>>>,
}

impl Drain {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the server will stop, waits up to `grace` if anyone listens, and begins to stop.
    pub async fn announce(&self, grace: Duration) {
        self.announced.cancel();
        if !grace.is_zero() && self.is_watched() {
            tracing::info!(seconds = grace.as_secs_f32(), "not ready, and still answering");
            tokio::time::sleep(grace).await;
        }
        self.start();
    }

    /// Begins to stop, at once.
    pub fn start(&self) {
        self.announced.cancel();
        self.started.cancel();
    }

    /// Whether requests should be sent elsewhere.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.announced.is_cancelled()
    }

    /// Resolves when requests should be sent elsewhere.
    pub async fn announced(&self) {
        self.announced.cancelled().await;
    }

    /// Notes that somebody wants to know whether to send requests here.
    pub(super) fn note_watcher(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_watched(&self) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some_and(|at| at.elapsed() < WATCHING)
    }

    #[must_use]
    pub fn has_started(&self) -> bool {
        self.started.is_cancelled()
    }

    /// Resolves when the server begins to stop.
    pub async fn started(&self) {
        self.started.cancelled().await;
    }

    /// The second signal, for responses of the domains.
    #[must_use]
    pub fn stopping(&self) -> Stopping {
        let started = self.started.clone();
        Stopping::new(move || Box::pin(started.clone().cancelled_owned()))
    }

    /// Runs `work` unless and until the server begins to stop.
    pub async fn unless_started<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.started.run_until_cancelled(work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_watched_server_waits() {
        let grace = Duration::from_secs(5);
        let (unwatched, watched, forgotten) = (Drain::new(), Drain::new(), Drain::new());
        forgotten.note_watcher();
        tokio::time::advance(WATCHING).await;
        watched.note_watcher();
        for (drain, waits) in [(unwatched, false), (watched, true), (forgotten, false)] {
            let began = Instant::now();
            assert!(!drain.is_announced());
            let announced = drain.announce(grace);
            let half = tokio::time::timeout(grace / 2, announced);
            assert_eq!(half.await.is_err(), waits);
            assert!(drain.is_announced());
            assert_eq!(drain.has_started(), !waits);
            assert_eq!(began.elapsed() > Duration::ZERO, waits);
        }
    }
}
