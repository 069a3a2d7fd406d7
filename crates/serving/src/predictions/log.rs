//! The way into the log: never waits, never holds more than it may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::config::PredictionsConfig;
use super::prediction::{Home, Prediction};

/// Takes predictions. Cheap to clone; once all clones are gone what was taken is written.
#[derive(Clone, Debug)]
pub struct Log {
    entries: mpsc::Sender<Entry>,
    orders: mpsc::Sender<oneshot::Sender<()>>,
    shared: Arc<Shared>,
}

/// What became of the predictions that were offered since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken; in a file by now, or on the way there.
    pub taken: u64,
    /// Not taken because too many were waiting, or too large.
    pub dropped: u64,
    /// In a file.
    pub written: u64,
    /// Taken, and lost because the file could not be written.
    pub lost: u64,
    pub files: u64,
    /// Bytes that are in memory now.
    pub waiting_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    max_bytes: usize,
    bytes: AtomicUsize,
    taken: AtomicU64,
    dropped: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) files: AtomicU64,
}

/// A prediction on its way into a file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) home: Arc<Home>,
    pub(super) prediction: Prediction,
    pub(super) held: Held,
}

/// Memory that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Shared>,
    pub(super) bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The other end of a log.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) entries: mpsc::Receiver<Entry>,
    pub(super) orders: mpsc::Receiver<oneshot::Sender<()>>,
    pub(super) shared: Arc<Shared>,
}

impl Log {
    pub(super) fn new(config: &PredictionsConfig) -> (Self, Taken) {
        let (entries, taken) = mpsc::channel(config.max_waiting.max(1));
        let (orders, given) = mpsc::channel(8);
        let shared = Shared { max_bytes: config.max_memory.as_usize(), ..Shared::default() };
        let shared = Arc::new(shared);
        let log = Self { entries, orders, shared: shared.clone() };
        (log, Taken { entries: taken, orders: given, shared })
    }

    /// Takes a prediction if there is room. Never waits; `false`: it is not kept, and counted.
    pub fn offer(&self, home: &Arc<Home>, prediction: Prediction) -> bool {
        let bytes = prediction.bytes();
        let taken = self.hold(bytes).is_some_and(|held| {
            let entry = Entry { home: home.clone(), prediction, held };
            self.entries.try_send(entry).is_ok()
        });
        let counted = if taken { &self.shared.taken } else { &self.shared.dropped };
        counted.fetch_add(1, Ordering::Relaxed);
        taken
    }

    /// Writes everything that was taken before this call, however little it is.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.orders.send(done).await.is_ok() {
            let _ = wait.await;
        }
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { taken, dropped, written, lost, files, bytes, .. } = &*self.shared;
        Counts {
            taken: read(taken),
            dropped: read(dropped),
            written: read(written),
            lost: read(lost),
            files: read(files),
            waiting_bytes: bytes.load(Ordering::Relaxed) as u64,
        }
    }

    fn hold(&self, bytes: usize) -> Option<Held> {
        let room = |now: usize| now.checked_add(bytes).filter(|all| *all <= self.shared.max_bytes);
        self.shared.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Held { shared: self.shared.clone(), bytes })
    }
}
