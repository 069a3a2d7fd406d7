//! The way into the log: never waits for anybody who writes, never holds more than it may.
//!
//! Each thread lays what it is offered on sheets of its own, or of its own and another's where there are many,
//! so that threads hardly wait for each other, and nobody is woken but for a sheet that was begun or is full.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::config::PredictionsConfig;
use super::prediction::{Home, Prediction};
use super::sheet::{Full, Sheet};

/// How large a sheet becomes: enough that whoever writes is hardly woken, and little beside a file.
const SHEET: Full = Full { rows: 1000, bytes: 1 << 20 };
/// How many sheets of one endpoint a thread fills at a time. Variants with other inputs each have
/// their own; callers that leave inputs out must not make one for each mixture.
const MIXTURES: usize = 8;
/// No more places to fill sheets at than this.
const MOST_PLACES: usize = 64;

/// Takes predictions. Cheap to clone; once all clones are gone what was taken is written.
#[derive(Clone, Debug)]
pub struct Log {
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

#[derive(Debug)]
pub(super) struct Shared {
    max_waiting: u64,
    max_bytes: usize,
    full: Full,
    bytes: AtomicUsize,
    /// Those of them that the writer has not come for.
    laid: AtomicUsize,
    taken: AtomicU64,
    /// How many of those the writer has come for.
    collected: AtomicU64,
    dropped: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) files: AtomicU64,
    places: Box<[Place]>,
    full_ones: Mutex<Vec<Sheet>>,
    /// Told when a sheet is begun or full, or there is little room left.
    news: Notify,
    /// Whether the writer was asked for room and has not come yet.
    crowded: AtomicBool,
}

/// The sheets that one thread fills, or a few threads. On lines of the cache of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(Mutex<Vec<Sheet>>);

impl Place {
    fn sheets(&self) -> MutexGuard<'_, Vec<Sheet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sheet on its way into a file, and the memory that it takes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) sheet: Sheet,
    pub(super) held: Held,
}

/// Memory that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The other end of a log.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) orders: mpsc::Receiver<oneshot::Sender<()>>,
    pub(super) shared: Arc<Shared>,
}

impl Log {
    /// `begin` starts whoever writes, with the other end of the log.
    pub(super) fn new(
        config: &PredictionsConfig,
        begin: impl FnOnce(Taken) + Send + 'static,
    ) -> Self {
        let (orders, given) = mpsc::channel(8);
        let shared = Arc::new(Shared::new(config));
        let taken = Taken { orders: given, shared: shared.clone() };
        let begin: Box<dyn FnOnce() + Send> = Box::new(move || begin(taken));
        let writer = Waiting { begun: AtomicBool::new(false), begin: Mutex::new(Some(begin)) };
        Self { orders, shared, writer: Arc::new(writer) }
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
    pub fn offer(&self, home: &Arc<Home>, prediction: &Prediction<'_>) -> bool {
        self.writer.begin();
        let taken = self.shared.take(home, prediction);
        if !taken {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
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
}

impl Shared {
    fn new(config: &PredictionsConfig) -> Self {
        // Requests are answered on the runtime's threads and on the port's, as many as there are processors each.
        let places = available_parallelism().map_or(1, usize::from) * 2;
        Self {
            max_waiting: config.max_waiting.max(1) as u64,
            max_bytes: config.max_memory.as_usize(),
            full: Full {
                rows: SHEET.rows.min(config.file_rows).max(1),
                bytes: SHEET.bytes.min(config.file_bytes.as_usize()),
            },
            bytes: AtomicUsize::default(),
            laid: AtomicUsize::default(),
            taken: AtomicU64::default(),
            collected: AtomicU64::default(),
            dropped: AtomicU64::default(),
            written: AtomicU64::default(),
            lost: AtomicU64::default(),
            files: AtomicU64::default(),
            places: (0..places.min(MOST_PLACES)).map(|_| Place::default()).collect(),
            full_ones: Mutex::default(),
            news: Notify::new(),
            crowded: AtomicBool::default(),
        }
    }

    fn take(&self, home: &Arc<Home>, prediction: &Prediction<'_>) -> bool {
        let bytes = prediction.bytes();
        // Whoever comes at the same moment counts as well: one too few may be taken, never one too many.
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let laid = self.laid.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let number = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let waiting = number.saturating_sub(self.collected.load(Ordering::Relaxed));
        let fits = all <= self.max_bytes && waiting <= self.max_waiting;
        let taken = fits && self.lay(home, prediction, bytes);
        if taken {
            // What lies here is in the way; what the writer has come for already is not, and coming again
            // would not make it less.
            if laid > self.max_bytes / 2 || waiting > self.max_waiting / 2 {
                self.crowd();
            }
        } else {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.taken.fetch_sub(1, Ordering::Relaxed);
            if self.laid.fetch_sub(bytes, Ordering::Relaxed) > bytes {
                self.crowd();
            }
        }
        taken
    }

    /// Lays a prediction on the sheet that it belongs on.
    fn lay(&self, home: &Arc<Home>, prediction: &Prediction<'_>, bytes: usize) -> bool {
        let mut done = None;
        let mut begun = false;
        let mut sheets = self.here().sheets();
        let at =
            sheets.iter().position(|sheet| sheet.fits(home, prediction)).unwrap_or_else(|| {
                done = one_too_many(&mut sheets, home);
                begun = true;
                sheets.push(Sheet::like(home.clone(), prediction));
                sheets.len() - 1
            });
        let laid = sheets[at].push(prediction, bytes).is_ok();
        let full = sheets[at].is_full(self.full).then(|| sheets.swap_remove(at));
        let news = begun || full.is_some() || done.is_some();
        if full.is_some() || done.is_some() {
            // Before the place is let go of: whoever collects everything finds a sheet here or there.
            self.full_ones().extend(full.into_iter().chain(done));
        }
        drop(sheets);
        if news {
            self.news.notify_one();
        }
        laid
    }

    fn here(&self) -> &Place {
        thread_local! {
            static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
        }
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.get().unwrap_or_else(|| {
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        });
        &self.places[number % self.places.len()]
    }

    fn full_ones(&self) -> MutexGuard<'_, Vec<Sheet>> {
        self.full_ones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the writer to come for everything, once.
    fn crowd(&self) {
        if !self.crowded.swap(true, Ordering::Relaxed) {
            self.news.notify_one();
        }
    }

    /// Waits until there is something to look at.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// When the oldest sheet that is being filled was begun.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let oldest = |place: &Place| place.sheets().iter().map(|sheet| sheet.since).min();
        self.places.iter().filter_map(oldest).min()
    }

    /// Sheets that are full, or all if the room is needed.
    pub(super) fn collect(self: &Arc<Self>) -> Vec<Entry> {
        if self.crowded.swap(false, Ordering::Relaxed) {
            return self.collect_all();
        }
        let full = std::mem::take(&mut *self.full_ones());
        self.entries(full)
    }

    /// Everything that was taken.
    pub(super) fn collect_all(self: &Arc<Self>) -> Vec<Entry> {
        // Those that are being filled first: one that becomes full meanwhile is among the others then.
        let mut all: Vec<Sheet> = Vec::new();
        for place in &self.places {
            all.append(&mut place.sheets());
        }
        all.append(&mut self.full_ones());
        self.entries(all)
    }

    fn entries(self: &Arc<Self>, mut sheets: Vec<Sheet>) -> Vec<Entry> {
        // They may lie for long until there are enough for a file.
        sheets.iter_mut().for_each(Sheet::fold);
        let rows: usize = sheets.iter().map(Sheet::rows).sum();
        self.collected.fetch_add(rows as u64, Ordering::Relaxed);
        self.laid.fetch_sub(sheets.iter().map(|sheet| sheet.bytes).sum(), Ordering::Relaxed);
        let held = |sheet: &Sheet| Held { shared: self.clone(), bytes: sheet.bytes };
        sheets.into_iter().map(|sheet| Entry { held: held(&sheet), sheet }).collect()
    }
}

/// Takes the oldest sheet of an endpoint away if it has as many as it may have.
fn one_too_many(sheets: &mut Vec<Sheet>, home: &Home) -> Option<Sheet> {
    let ours =
        || sheets.iter().enumerate().filter(|(_, sheet)| sheet.home.endpoint == home.endpoint);
    if ours().count() < MIXTURES {
        return None;
    }
    let (oldest, _) = ours().min_by_key(|(_, sheet)| sheet.since)?;
    Some(sheets.swap_remove(oldest))
}

#[cfg(test)]
mod tests {
    use falaj_base::ByteSize;

    use super::super::testing::{Sample, config, home};
    use super::*;

    #[test]
    fn an_offer_never_waits_and_a_refusal_is_counted() {
        let few = PredictionsConfig { max_waiting: 2, ..config() };
        let (log, taken) = Log::apart(&few);
        let home = home();
        let offer = || log.offer(&home, &Sample::new("x", 1).prediction());
        assert_eq!([offer(), offer(), offer(), offer()], [true, true, false, false]);
        let counts = log.counts();
        assert_eq!((counts.taken, counts.dropped), (2, 2));
        // The writer is asked to come, and then there is room again.
        let entries = taken.shared.collect();
        assert_eq!(entries.iter().map(|entry| entry.sheet.rows()).sum::<usize>(), 2);
        assert!(log.counts().waiting_bytes > 0, "until they are written");
        drop(entries);
        // What was refused holds nothing.
        assert_eq!(log.counts().waiting_bytes, 0);
        assert!(offer());
        let (log, _taken) = Log::apart(&config());
        assert!(
            !log.offer(&home, &Sample::new("x", 200_000).prediction()),
            "larger than the memory"
        );
        assert_eq!(log.counts().waiting_bytes, 0);
    }

    #[test]
    fn sheets_are_told_of_when_they_are_full_and_mixtures_are_bounded() {
        let three = PredictionsConfig { file_rows: 3, ..config() };
        let (log, taken) = Log::apart(&three);
        let home = home();
        let rows = || {
            let entries = taken.shared.collect();
            entries.iter().map(|entry| entry.sheet.rows()).collect::<Vec<_>>()
        };
        let mut seen = Vec::new();
        for _ in 0..4 {
            assert!(log.offer(&home, &Sample::new("x", 1).prediction()));
            seen.push(rows());
        }
        assert_eq!(seen, [vec![], vec![], vec![3], vec![]]);
        let full = (0..2 * MIXTURES).filter(|n| {
            assert!(log.offer(&home, &Sample::new(&format!("x{n}"), 1).prediction()));
            rows() == [1]
        });
        // One was being filled before these.
        assert_eq!(full.count(), MIXTURES + 1);
        assert_eq!(taken.shared.collect_all().len(), MIXTURES);
        assert_eq!(taken.shared.oldest(), None);
    }

    #[test]
    fn threads_fill_sheets_side_by_side_and_none_is_forgotten() {
        let roomy = PredictionsConfig {
            max_waiting: 1_000_000,
            max_memory: ByteSize::mib(512),
            file_rows: 100,
            ..config()
        };
        let (log, taken) = Log::apart(&roomy);
        let home = home();
        // Whoever shares a place with whom, not all sheets are full.
        let (threads, each) = (4, 2_051);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..each {
                        assert!(log.offer(&home, &Sample::new("x", 3).prediction()));
                    }
                });
            }
        });
        let full: usize = taken.shared.collect().iter().map(|entry| entry.sheet.rows()).sum();
        let rest: usize = taken.shared.collect_all().iter().map(|entry| entry.sheet.rows()).sum();
        assert_eq!(full + rest, threads * each);
        assert!(full > 0 && rest > 0, "{full} {rest}");
        assert_eq!(log.counts().waiting_bytes, 0);
    }
}
