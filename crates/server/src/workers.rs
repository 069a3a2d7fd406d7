//! Runs background work: each worker on a timer and on its signal, on one server at a time.
//!
//! Must hold:
//! - Without the lease `worker/<name>`, a worker that is not for every server does not run.
//! - The lease is renewed while a run lasts, and a run is dropped if the lease is lost.
//! - A failing worker is retried with growing pauses and logged when it begins to fail and when
//!   it recovers, not each time.
//! - Stopping waits for a run in progress, up to a limit, and gives the lease back.

use std::time::Duration;

use falaj_base::Result;
use falaj_store::lease::{Lease, Leases};
use falaj_store::worker::Worker;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::http::Drain;
use crate::metrics::Metrics;

/// How long a lease lasts unless renewed: the longest that work stands still after its server
/// died.
const LEASE: Duration = Duration::from_secs(9);
/// Renewed at a third, so that two missed renewals cost nothing.
const RENEW_EVERY: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// All background work of this server.
#[derive(Debug)]
pub struct Driver {
    leases: Leases,
    metrics: Metrics,
    drain: Drain,
    tasks: TaskTracker,
}

impl Driver {
    #[must_use]
    pub fn new(leases: Leases, metrics: Metrics, drain: Drain) -> Self {
        Self { leases, metrics, drain, tasks: TaskTracker::new() }
    }

    /// Runs `worker` from now until the server stops.
    pub fn start(&self, worker: Worker) {
        let post = Post {
            lease_name: format!("worker/{}", worker.name),
            worker,
            leases: self.leases.clone(),
            metrics: self.metrics.clone(),
            drain: self.drain.clone(),
            held: None,
            failures: 0,
        };
        self.tasks.spawn(post.keep());
    }

    /// Waits for the runs in progress, once the server is stopping.
    pub async fn finish(self, patience: Duration) {
        self.tasks.close();
        if tokio::time::timeout(patience, self.tasks.wait()).await.is_err() {
            tracing::warn!(workers = self.tasks.len(), "left background work unfinished");
        }
    }
}

/// One worker and what it takes to run it.
struct Post {
    worker: Worker,
    lease_name: String,
    leases: Leases,
    metrics: Metrics,
    drain: Drain,
    held: Option<Held>,
    failures: u32,
}

/// A lease, and when it was last taken or renewed.
struct Held {
    lease: Lease,
    since: Instant,
}

impl Post {
    async fn keep(mut self) {
        while !self.drain.has_started() {
            let turn = self.turn().await;
            self.note(turn);
            let drain = self.drain.clone();
            if drain.unless_started(self.pause()).await.is_none() {
                break;
            }
        }
        self.give_back().await;
    }

    /// One run, if it is ours to run.
    async fn turn(&mut self) -> Result<()> {
        if self.worker.everywhere {
            return self.worker.run().await;
        }
        if !self.hold().await? {
            return Ok(());
        }
        let worker = self.worker.clone();
        tokio::select! {
            outcome = worker.run() => outcome,
            lost = self.renew() => lost,
        }
    }

    /// Takes or renews the lease; a fresh one is left alone, since each renewal is a write.
    async fn hold(&mut self) -> Result<bool> {
        if self.held.as_ref().is_some_and(|held| held.since.elapsed() < RENEW_EVERY) {
            return Ok(true);
        }
        // Counted from before the question, so that we never believe longer than it lasts.
        let since = Instant::now();
        let lease = self.leases.acquire(&self.lease_name, LEASE).await?;
        self.held = lease.map(|lease| Held { lease, since });
        Ok(self.held.is_some())
    }

    /// Keeps the lease while a run lasts; resolves only when it is lost.
    async fn renew(&mut self) -> Result<()> {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if !self.hold().await? {
                tracing::warn!(worker = self.worker.name, "another server took over");
                return Ok(());
            }
        }
    }

    /// Until the next turn: the timer, or the worker's own signal. After a failure the pause
    /// grows, and the signal does not cut it short.
    async fn pause(&self) {
        let timer = tokio::time::sleep(self.pause_length());
        match &self.worker.wake {
            Some(signal) if self.failures == 0 => {
                tokio::select! {
                    () = timer => {}
                    () = signal.notified() => {}
                }
            }
            _ => timer.await,
        }
    }

    fn pause_length(&self) -> Duration {
        match self.failures.checked_sub(1) {
            Some(doublings) => backoff(doublings),
            // A holder looks in often enough to keep its lease; the others wait for its end.
            None if self.worker.everywhere => self.worker.every,
            None => self.worker.every.min(LONGEST_PAUSE),
        }
    }

    fn note(&mut self, outcome: Result<()>) {
        let name = self.worker.name;
        self.metrics.count_run(name, outcome.is_ok());
        match outcome {
            Err(error) if self.failures == 0 => {
                self.failures = 1;
                tracing::error!(worker = name, error = error.chain(), "background work fails");
            }
            Err(_) => self.failures = self.failures.saturating_add(1),
            Ok(()) if self.failures > 0 => {
                tracing::info!(worker = name, after = self.failures, "background work recovered");
                self.failures = 0;
            }
            Ok(()) => {}
        }
    }

    async fn give_back(&self) {
        if let Some(held) = &self.held
            && let Err(error) = self.leases.release(&held.lease).await
        {
            tracing::debug!(worker = self.worker.name, %error, "the lease will run out by itself");
        }
    }
}

fn backoff(doublings: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << doublings.min(10)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let seconds: Vec<_> = (0..8).map(|n| backoff(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u32::MAX), LONGEST_PAUSE);
    }
}
