//! The way into the log: never waits, never holds more than it may.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::config::PredictionsConfig;
use super::prediction::{Home, Prediction};

/// Takes predictions. Cheap to clone; once all clones are gone what was taken is written.
#[derive(Clone, Debug)]
pub struct Log {
    entries: mpsc::Sender<Entry>,
    orders: mpsc::Sender<oneshot::Sender<()>>,
    shared: Arc<Shared>,
    writer: Arc<Waiting>,
}

/// The writer, which begins with the first prediction: until then nobody holds the database open
/// for the log's sake.
struct Waiting {
    begun: AtomicBool,
    begin: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.begun.fmt(f)
    }
}

impl Waiting {
    fn begin(&self) {
        if self.begun.load(Ordering::Acquire) {
            return;
        }
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(begin) = begin {
            begin();
            self.begun.store(true, Ordering::Release);
        }
    }
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
    /// `begin` starts whoever writes, with the other end of the log.
    pub(super) fn new(
        config: &PredictionsConfig,
        begin: impl FnOnce(Taken) + Send + 'static,
    ) -> Self {
        let (entries, taken) = mpsc::channel(config.max_waiting.max(1));
        let (orders, given) = mpsc::channel(8);
        let shared = Shared { max_bytes: config.max_memory.as_usize(), ..Shared::default() };
        let shared = Arc::new(shared);
        let taken = Taken { entries: taken, orders: given, shared: shared.clone() };
        let begin: Box<dyn FnOnce() + Send> = Box::new(move || begin(taken));
        let writer = Waiting { begun: AtomicBool::new(false), begin: Mutex::new(Some(begin)) };
        Self { entries, orders, shared, writer: Arc::new(writer) }
    }

    /// A log whose other end is in the test's hands.
    #[cfg(test)]
    pub(super) fn apart(config: &PredictionsConfig) -> (Self, Taken) {
        let (hand, over) = std::sync::mpsc::channel();
        let log = Self::new(config, move |taken| hand.send(taken).unwrap());
        log.writer.begin();
        (log, over.recv().unwrap())
    }

    /// Takes a prediction if there is room; inside a runtime. Never waits; `false`: it is not kept,
    /// and counted.
    #[must_use]
    pub fn offer(&self, home: &Arc<Home>, prediction: Prediction) -> bool {
        self.writer.begin();
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
        if !self.writer.begun.load(Ordering::Acquire) {
            return;
        }
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
