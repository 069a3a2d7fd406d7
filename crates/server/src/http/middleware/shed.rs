//! Says "not now" early rather than "too late" late.
//!
//! A bounded number of requests is worked on, a bounded number waits a bounded time, and the rest
//! is refused at once with a hint when to return. Transfers, which last, have slots of their own:
//! a hundred downloads do not keep one small call waiting. Routes that ask for no credential have
//! a few of their own: whoever holds those, known to nobody, keeps no known caller out. Of those
//! few, one source gets a share: the rest is left for the sign-ins of others. Health checks need no
//! slot, so a full server is still known to be alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use falaj_base::{Error, Result, code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::config::LimitsConfig;
use crate::http::connection::Peer;
use crate::http::route::{Class, RouteKind};
use crate::http::sources::{SourceGuard, Sources};
use crate::metrics::Metrics;

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The slots of the whole server.
#[derive(Debug)]
pub(crate) struct Slots {
    calls: Lane,
    streams: Lane,
    public: Lane,
    metrics: Metrics,
}

#[derive(Clone, Debug)]
struct Lane {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    max_waiting: usize,
    max_wait: Duration,
    limit: &'static str,
    /// What one source may hold or wait for; none where callers are known by their credential.
    shares: Option<Sources>,
}

/// A slot, and the source's share of it.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
    _share: Option<SourceGuard>,
}

impl Slots {
    pub(crate) fn new(limits: &LimitsConfig, metrics: Metrics) -> Self {
        let lane = |slots: usize, limit: &'static str| Lane {
            permits: Arc::new(Semaphore::new(slots)),
            waiting: Arc::default(),
            max_waiting: limits.max_queued,
            max_wait: limits.max_queue_wait.get(),
            limit,
            shares: None,
        };
        let shares = Some(Sources::new(limits.max_public_per_source));
        Self {
            calls: lane(limits.max_in_flight, "limits.max_in_flight"),
            streams: lane(limits.max_streams, "limits.max_streams"),
            public: Lane {
                shares,
                ..lane(limits.max_public_in_flight, "limits.max_public_in_flight")
            },
            metrics,
        }
    }

    /// Takes a slot, to be held until the last byte of the reply; none if the route needs none.
    pub(crate) async fn take(&self, class: &Class, peer: &Peer) -> Result<Option<Slot>> {
        let Some(lane) = self.lane(class.kind, class.public) else { return Ok(None) };
        lane.take(Some(peer)).await.map(Some).inspect_err(|_| self.metrics.count_shed())
    }

    /// The slots a request of this kind competes for, if it needs one.
    fn lane(&self, kind: RouteKind, public: bool) -> Option<&Lane> {
        match kind {
            RouteKind::Health => None,
            _ if public => Some(&self.public),
            RouteKind::Call => Some(&self.calls),
            RouteKind::Stream | RouteKind::Grpc => Some(&self.streams),
        }
    }
}

impl Lane {
    async fn take(&self, peer: Option<&Peer>) -> Result<Slot> {
        let share = self.share(peer)?;
        Ok(Slot { _permit: self.permit().await?, _share: share })
    }

    /// Counted before the wait, so that one source does not fill the queue either.
    fn share(&self, peer: Option<&Peer>) -> Result<Option<SourceGuard>> {
        let (Some(shares), Some(peer)) = (&self.shares, peer) else { return Ok(None) };
        shares.enter(peer.address.ip()).map(Some).ok_or_else(|| {
            let message = "too many requests without a credential at once from this address \
                           (`limits.max_public_per_source`)";
            Error::new(&code::RATE_LIMITED, message).retry_after(RETRY_AFTER)
        })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        Box::pin(self.wait()).await
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit> {
        let _place = Place::take(&self.waiting, self.max_waiting).ok_or_else(|| self.refusal())?;
        let turn = Arc::clone(&self.permits).acquire_owned();
        match tokio::time::timeout(self.max_wait, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(self.refusal()),
        }
    }

    fn refusal(&self) -> Error {
        let message = format!("the server is at its limit (`{}`)", self.limit);
        Error::new(&code::OVERLOADED, message).retry_after(RETRY_AFTER)
    }
}

/// A place in the queue.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, max: usize) -> Option<Self> {
        let place = Self(waiting);
        // Dropping the place on refusal takes the count back.
        (waiting.fetch_add(1, Ordering::AcqRel) < max).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_lane_refuses_and_recovers() {
        let lane = Lane {
            permits: Arc::new(Semaphore::new(1)),
            waiting: Arc::default(),
            max_waiting: 1,
            max_wait: Duration::from_millis(40),
            limit: "limits.max_in_flight",
            shares: None,
        };
        let held = lane.take(None).await.unwrap();
        let (waited, refused) = tokio::join!(lane.take(None), lane.take(None));
        for answer in [waited, refused] {
            let error = answer.unwrap_err();
            assert_eq!(error.code(), &code::OVERLOADED);
            assert_eq!(error.wait(), Some(RETRY_AFTER));
        }
        assert_eq!(lane.waiting.load(Ordering::Acquire), 0);
        drop(held);
        assert!(lane.take(None).await.is_ok());
    }
}
