//! Being told of changes by the cluster, so that it need not be asked again and again how things are.
//!
//! Must hold: all that is heard here is that something has changed; what it is, is asked for. Where the cluster does
//! not let us watch, or the connection breaks, it is asked more often instead.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use kube::core::WatchEvent;

/// How long one watch lasts, in seconds.
pub(super) const TURN: u32 = 240;
/// How soon after the end of one the next one begins, if it went well and if it did not.
const AGAIN: Duration = Duration::from_millis(100);
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_mins(1);
/// One that lasts so long has gone well.
const WELL: Duration = Duration::from_secs(10);

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: bool,
    changes: u64,
    /// How many of them somebody was woken for.
    woken: u64,
    /// How many of the two watches listen: one for jobs, one for pods.
    listening: u32,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to begin; once.
    pub(super) fn begins(&self) -> bool {
        !std::mem::replace(&mut self.state().begun, true)
    }

    /// How many changes were told so far; `None` while some are not.
    pub(super) fn heard(&self) -> Option<u64> {
        let state = self.state();
        (state.listening == 2).then_some(state.changes)
    }

    /// Waits until more was heard than that, or for so long. Nobody is woken twice for the same: it may be long
    /// until somebody can look at it.
    pub(super) fn wait(&self, heard: Option<u64>, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_more = heard.is_some_and(|heard| state.changes != heard);
            if is_more && state.changes != state.woken {
                state.woken = state.changes;
                return;
            }
            if left.is_zero() {
                return;
            }
            let waited = self.told.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        // Also when it begins or ends: what happened just before was not told.
        state.changes += 1;
        drop(state);
        self.told.notify_all();
    }
}

/// Follows the changes of one kind of thing for ever. `ask` begins a watch.
pub(super) async fn follow<K, S, F>(watch: Arc<Watch>, ask: impl Fn() -> F)
where
    S: Stream<Item = Result<WatchEvent<K>, kube::Error>>,
    F: Future<Output = Result<S, kube::Error>>,
{
    let mut pause = SOONEST;
    loop {
        let begun = Instant::now();
        match ask().await {
            Ok(events) => {
                watch.change(|state| state.listening += 1);
                listen(&watch, events).await;
                watch.change(|state| state.listening -= 1);
            }
            Err(error) => tracing::debug!(%error, "the cluster lets nobody watch"),
        }
        pause = if begun.elapsed() >= WELL { AGAIN } else { (pause * 2).clamp(SOONEST, LATEST) };
        tokio::time::sleep(pause).await;
    }
}

async fn listen<K>(watch: &Watch, events: impl Stream<Item = Result<WatchEvent<K>, kube::Error>>) {
    let mut events = pin!(events);
    let until = tokio::time::Instant::now() + Duration::from_secs(u64::from(TURN) + 10);
    while let Ok(Some(event)) = tokio::time::timeout_at(until, events.next()).await {
        match event {
            Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)) => {
                watch.change(|_| ());
            }
            Ok(WatchEvent::Bookmark(_)) => {}
            Ok(WatchEvent::Error(_)) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_both_together_are_heard_and_a_change_wakes() {
        let watch = Watch::default();
        assert!(watch.begins() && !watch.begins());
        watch.change(|state| state.listening += 1);
        assert_eq!(watch.heard(), None);
        watch.change(|state| state.listening += 1);
        let heard = watch.heard();
        assert!(heard.is_some());
        let begun = Instant::now();
        watch.wait(heard, Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        watch.change(|_| ());
        // What was told before it waits is not missed.
        let begun = Instant::now();
        watch.wait(heard, Duration::from_mins(1));
        assert!(begun.elapsed() < Duration::from_secs(30));
        // Nobody has looked since: it is not told again.
        let begun = Instant::now();
        watch.wait(heard, Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        watch.change(|state| state.listening -= 1);
        assert_eq!(watch.heard(), None);
    }
}
