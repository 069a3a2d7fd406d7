//! How busy one connection is: what the idle timeout is measured against.
//!
//! A request counts from its head until the last byte of its response, so that a long download
//! is never mistaken for silence. A connection with nothing in flight may stay for
//! `header_timeout` before its first request and for `idle_timeout` after any other; a client
//! that drips a head byte by byte starts no request, and so is closed by the same rule on HTTP/1
//! and HTTP/2 alike.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The in-flight count of one connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    in_flight: usize,
    served: bool,
    quiet_since: Instant,
}

impl Activity {
    pub(super) fn new() -> Self {
        let state = State { in_flight: 0, served: false, quiet_since: Instant::now() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Counts one request until the returned guard is dropped.
    pub(super) fn begin(&self) -> Busy {
        let mut state = self.lock();
        state.in_flight += 1;
        state.served = true;
        Busy(self.clone())
    }

    /// Whether there was a request already.
    pub(super) fn has_served(&self) -> bool {
        self.lock().served
    }

    /// Resolves once nothing has been in flight for too long: `first` before the first request,
    /// `idle` after any other.
    pub(super) async fn silence(&self, first: Duration, idle: Duration) {
        loop {
            let expires = self.expires(first, idle);
            if expires <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(expires).await;
        }
    }

    /// When the connection will have been quiet for too long, if nothing else happens.
    fn expires(&self, first: Duration, idle: Duration) -> Instant {
        let state = self.lock();
        match state.in_flight {
            0 if !state.served => state.quiet_since + first,
            0 => state.quiet_since + idle,
            _ => Instant::now() + idle,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request in flight.
#[derive(Debug)]
pub(super) struct Busy(Activity);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.in_flight -= 1;
        state.quiet_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_silence_counts() {
        let (first, idle) = (Duration::from_secs(10), Duration::from_secs(30));
        let start = Instant::now();
        let activity = Activity::new();
        assert_eq!(activity.expires(first, idle), start + first);

        let request = activity.begin();
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(activity.expires(first, idle), Instant::now() + idle);

        drop(request);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(activity.expires(first, idle), Instant::now() + Duration::from_secs(25));
    }
}
