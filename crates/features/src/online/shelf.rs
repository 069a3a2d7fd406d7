//! The online store of this server, opened when it is first needed and kept up with the log.
//!
//! Must hold:
//! - Nothing is read before every push was applied once since the store was opened: from the log, and
//!   from files where the log does not reach back far enough.
//! - The position that the store remembers is one that everything before it was applied at.
//! - A push applied right after its commit to our own file is not applied again when the log is read;
//!   to Redis it is, since that may have lost it.
//! - Rows that another database numbered are never read: a file is emptied, a Redis refused unless it
//!   is our own from before a restore.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result, code};
use falaj_online::store::{Embedded, Redis};
use falaj_online::{About, Batch, Home, Online};
use falaj_store::db::{Db, Tx};
use falaj_store::objects::Objects;
use falaj_store::worker::Worker;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard, OnceCell};
use uuid::Uuid;

use super::config::OnlineConfig;
use super::opening::Opening;
use super::rows::pack;
use super::shape::{Shape, place};
use crate::definition::store::by_id;
use crate::definition::{VersionId, ViewVersion};
use crate::erase::{self, Erased};
use crate::history::{Entry, Position, home, log, read_since};
use crate::source::aside;
use crate::transform::tiles;

/// The folder in the data directory.
const FOLDER: &str = "online";
/// How often the log is read for pushes to other servers, and rows are made to last.
const EVERY: Duration = Duration::from_secs(1);
/// How soon it is looked again for what others are writing.
const SOON: Duration = Duration::from_millis(10);
/// The most views and applied pushes that are remembered.
const REMEMBERED: usize = 10_000;
/// Bytes of a push that is unpacked where it is read.
const SHORT: usize = 4 << 10;

/// The store and what is known about it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shelf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: OnlineConfig,
    path: PathBuf,
    db: Db,
    objects: Objects,
    store: OnceLock<Online>,
    opening: Opening,
    home: OnceCell<Home>,
    /// What the store calls itself, as it was seen last.
    id: Mutex<Option<String>>,
    /// Whether the store has lost rows that are being brought again.
    filling: AtomicBool,
    /// How far the log was applied; held by whoever reads on.
    follower: AsyncMutex<Option<Position>>,
    applied: Mutex<Applied>,
    shapes: Mutex<HashMap<VersionId, Arc<Shape>>>,
    erased: AsyncMutex<Erased>,
}

/// Pushes that were applied before the log was read that far.
#[derive(Debug, Default)]
struct Applied {
    /// How far the log was read.
    passed: Position,
    beyond: HashSet<Position>,
}

fn outside(position: Position) -> falaj_online::Position {
    falaj_online::Position { tx: position.tx, seq: position.seq }
}

impl Shelf {
    pub(crate) fn new(config: OnlineConfig, db: Db, objects: Objects, data_dir: &Path) -> Self {
        Self(Arc::new(Inner {
            config,
            path: data_dir.join(FOLDER),
            db,
            objects,
            store: OnceLock::new(),
            opening: Opening::default(),
            home: OnceCell::new(),
            id: Mutex::default(),
            filling: AtomicBool::new(false),
            follower: AsyncMutex::default(),
            applied: Mutex::default(),
            shapes: Mutex::default(),
            erased: AsyncMutex::default(),
        }))
    }

    pub(crate) fn config(&self) -> &OnlineConfig {
        &self.0.config
    }

    /// How many rows erasures have taken out of the store.
    pub(crate) async fn erased(&self) -> AsyncGuard<'_, Erased> {
        self.0.erased.lock().await
    }

    pub(crate) fn db(&self) -> &Db {
        &self.0.db
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.0.objects
    }

    /// The store, as far as the log goes. Refused as *unavailable* after a while in which it was not
    /// opened, or filled.
    pub(crate) async fn store(&self) -> Result<&Online> {
        let store = match self.0.store.get() {
            Some(store) => store,
            None => self.opened().await?,
        };
        if self.0.filling.load(Ordering::Relaxed) {
            let text = "the online store has lost its rows and is being filled again";
            return Err(Error::new(&code::UNAVAILABLE, text).retry_after(EVERY));
        }
        Ok(store)
    }

    /// The store, whatever may be missing in it.
    pub(crate) async fn opened(&self) -> Result<&Online> {
        if let Some(store) = self.0.store.get() {
            return Ok(store);
        }
        let ours = self.clone();
        let open = || async move { ours.open().await };
        self.0.opening.wait(self.0.config.patience.get(), open).await?;
        self.0.store.get().ok_or_else(|| Error::internal("an opened store is not there"))
    }

    /// What the store calls itself: another one if it was emptied since.
    pub(crate) async fn store_id(&self) -> Result<String> {
        self.store().await?;
        let id = self.0.id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        id.ok_or_else(|| Error::internal("a store without a name"))
    }

    /// Whether the store is a file that nobody else has open.
    pub(crate) fn is_own(&self) -> bool {
        self.0.config.redis.url.is_empty()
    }

    async fn open(&self) -> Result<()> {
        let store = if self.is_own() {
            let (path, config) = (self.0.path.clone(), self.0.config.embedded.clone());
            let open = move || Embedded::open(&path, &config);
            let opened = tokio::task::spawn_blocking(open).await.map_err(Error::internal)?;
            Online::Embedded(opened?)
        } else {
            Online::Redis(Redis::new(&self.0.config.redis)?)
        };
        self.follow(&store).await?;
        drop(self.0.store.set(store));
        Ok(())
    }

    /// Settles in, if the store is new or was ours before a restore; tells what it remembers.
    async fn bound(&self, store: &Online) -> Result<About> {
        let home = self.0.home.get_or_try_init(|| home(&self.0.db)).await?;
        let mut about = store.about().await?;
        let ours_before = |theirs: &Home| {
            let restored = theirs.installation == home.installation;
            // Of two that share a Redis one was restored from the other: neither empties it again.
            self.is_own() || (restored && self.0.store.get().is_none())
        };
        if about.home.as_ref().is_some_and(|theirs| theirs != home && ours_before(theirs)) {
            tracing::warn!(
                "the online store is of another database: it is emptied and filled anew"
            );
            store.clear().await?;
            about = About::default();
        }
        if about.home.is_none() {
            about = store.settle_in(home, &Uuid::now_v7().simple().to_string()).await?;
        }
        if about.home.as_ref() != Some(home) {
            let text = "the online store belongs to another installation: set another \
                        `features.online.redis.prefix`, or delete its keys";
            return Err(Error::new(&code::UNAVAILABLE, text));
        }
        if self.0.store.get().is_none() {
            about = self.not_outdated(store, home, about).await?;
        }
        let mut id = self.0.id.lock().unwrap_or_else(PoisonError::into_inner);
        if id.is_some() && *id != about.id {
            // It was emptied, as a Redis is that comes back without what it had.
            self.0.filling.store(true, Ordering::Relaxed);
        }
        id.clone_from(&about.id);
        Ok(about)
    }

    /// Empties a store that was away for so long that what was erased meanwhile is forgotten.
    async fn not_outdated(&self, store: &Online, home: &Home, about: About) -> Result<About> {
        let id = about.id.clone().unwrap_or_default();
        let told = self.0.db.read(move |tx| erase::store::told(tx, &id)).await?;
        if !told.missed {
            return Ok(about);
        }
        tracing::warn!("the online store was away for long: it is emptied and filled anew");
        store.clear().await?;
        let about = store.settle_in(home, &Uuid::now_v7().simple().to_string()).await?;
        self.note_erased(about.id.clone(), told.last).await?;
        Ok(about)
    }

    async fn note_erased(&self, id: Option<String>, number: i64) -> Result<()> {
        let id = id.unwrap_or_default();
        self.0.db.write(move |tx| erase::store::note_done(tx, &id, number)).await
    }

    /// Erases in the store what was erased by others, or may have come back since.
    async fn erase_due(&self, store: &Online) -> Result<()> {
        let id = self.0.id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = id.clone().unwrap_or_default();
        let told = self.0.db.read(move |tx| erase::store::told(tx, &of)).await?;
        for erasure in &told.due {
            self.erase(store, erasure).await?;
        }
        if told.last > told.done { self.note_erased(id, told.last).await } else { Ok(()) }
    }

    /// Applies what the log has beyond what was applied, and makes it last.
    async fn follow(&self, store: &Online) -> Result<()> {
        let mut follower = self.0.follower.lock().await;
        let mut from = self.bound(store).await?.reached;
        let reached = Position { tx: from.tx, seq: from.seq };
        // A store that remembers less than we know may have lost rows: it begins again there.
        let mut at = self.passed_known(follower.map_or(reached, |at| at.min(reached))).await?;
        let mut filled = None;
        loop {
            let read = move |tx: &mut Tx<'_>| Ok((log::trimmed(tx)?, read_since(tx, at)?));
            let (trimmed, entries) = self.0.db.read(read).await?;
            let trimmed = trimmed.filter(|it| at <= it.until && filled != Some(it.times));
            if let Some(trimmed) = trimmed {
                // The log does not reach back to where the store is: files do.
                self.0.filling.store(true, Ordering::Relaxed);
                self.refill(store).await?;
                (at, filled) = (Position::START, Some(trimmed.times));
                continue;
            }
            let Some(last) = entries.last().map(|entry| entry.position) else { break };
            for entry in entries {
                let known = self.applied().beyond.contains(&entry.position);
                if !known {
                    self.replay(store, entry).await?;
                }
            }
            at = last;
            *follower = Some(at);
            self.pass(at);
            let to = outside(at).max(from);
            if store.settle(from, to).await? {
                from = to;
            }
        }
        *follower = Some(at);
        self.erase_due(store).await?;
        // Rows that came by themselves (materialised, or pushed and not yet settled in the log).
        store.settle(from, outside(at).max(from)).await?;
        self.0.filling.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Goes on in the log over pushes that were applied when they came: to read them again would be
    /// half of what they cost.
    async fn passed_known(&self, at: Position) -> Result<Position> {
        if self.applied().beyond.is_empty() {
            return Ok(at);
        }
        let read = move |tx: &mut Tx<'_>| {
            // Where something was taken off the log, others may be missing in between.
            let whole = log::trimmed(tx)?.is_none_or(|it| at > it.until);
            if whole { log::places_since(tx, at, REMEMBERED) } else { Ok(Vec::new()) }
        };
        let places = self.0.db.read(read).await?;
        let known = {
            let applied = self.applied();
            places.into_iter().take_while(|place| applied.beyond.contains(place)).last()
        };
        if let Some(known) = known {
            self.pass(known);
        }
        Ok(known.unwrap_or(at))
    }

    /// Forgets pushes that the log was read beyond.
    fn pass(&self, at: Position) {
        let mut applied = self.applied();
        applied.passed = at;
        applied.beyond.retain(|position| *position > at);
    }

    async fn replay(&self, store: &Online, entry: Entry) -> Result<()> {
        let shape = self.by_number(entry.view).await?;
        let (view, position, at) = (entry.view, entry.position, entry.at.micros());
        let (log, much) = (place(position), entry.size() > SHORT);
        let passed = |error: Error| passed_over((view, position), error);
        if shape.windows().is_some() {
            let batch = aside(much, move || entry.batch()).await?;
            let row = |row: usize| (at, log, u32::try_from(row).unwrap_or(u32::MAX));
            let places = (0..batch.num_rows()).map(row).collect();
            return tiles::follow(store, &shape, batch, places).await.or_else(passed);
        }
        let batch = aside(much, move || Ok(pack(&shape, &entry.batch()?, at, log))).await?;
        match batch {
            Ok(batch) => store.apply(batch).await.map(drop),
            Err(error) => passed(error),
        }
    }

    /// Applies a push that was just committed at this place.
    pub(crate) async fn pushed(&self, batch: Batch, position: Position) -> Result<usize> {
        let store = self.opened().await?;
        if batch.is_empty() {
            // Rows that are not packed one by one are added by whoever reads the log.
            return self.caught_up(store, position).await.map(|()| 0);
        }
        let placed = store.apply(batch).await?;
        // Redis may lose what it acknowledged and be as before, which we would not see: there the
        // log is applied whole.
        if matches!(store, Online::Redis(_)) {
            return Ok(placed);
        }
        let mut applied = self.applied();
        if position > applied.passed && applied.beyond.len() < REMEMBERED {
            applied.beyond.insert(position);
        }
        Ok(placed)
    }

    /// Reads the log as far as a place.
    async fn caught_up(&self, store: &Online, position: Position) -> Result<()> {
        let until = Instant::now() + self.0.config.patience.get();
        loop {
            self.follow(store).await?;
            if self.applied().passed >= position {
                return Ok(());
            }
            if Instant::now() >= until {
                let text = "others are still writing what comes before it in the log";
                return Err(Error::new(&code::UNAVAILABLE, text).retry_after(EVERY));
            }
            // On PostgreSQL a transaction that began earlier holds up those behind it.
            tokio::time::sleep(SOON).await;
        }
    }

    pub(crate) fn shape(&self, view: &ViewVersion) -> Result<Arc<Shape>> {
        if let Some(known) = self.shapes().get(&view.id()) {
            return Ok(known.clone());
        }
        let shape = Arc::new(Shape::of(view)?);
        let mut shapes = self.shapes();
        if shapes.len() >= REMEMBERED {
            shapes.clear();
        }
        shapes.insert(view.id(), shape.clone());
        Ok(shape)
    }

    /// The shape of what rows are kept under.
    pub(super) async fn by_number(&self, id: VersionId) -> Result<Arc<Shape>> {
        if let Some(known) = self.shapes().get(&id) {
            return Ok(known.clone());
        }
        let found = self.0.db.read(move |tx| by_id(tx, id)).await?;
        let view = found.and_then(|(_, definition)| ViewVersion::of(&Arc::new(definition)));
        let view = view.ok_or_else(|| {
            let text = format!("a push to the view version {id}, which is not there");
            Error::new(&code::INTEGRITY, text)
        })?;
        self.shape(&view)
    }

    /// Keeps up with pushes to other servers. Each server has a file of its own; a Redis is kept
    /// up with by all, since doing it twice changes nothing.
    pub(crate) fn worker(&self) -> Worker {
        let ours = self.clone();
        Worker::new("features-online", EVERY, move || {
            let ours = ours.clone();
            async move { ours.follow(ours.opened().await?).await }
        })
        .on_every_server()
    }

    fn applied(&self) -> MutexGuard<'_, Applied> {
        self.0.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shapes(&self) -> MutexGuard<'_, HashMap<VersionId, Arc<Shape>>> {
        self.0.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a push says was computed when it was kept; should that no longer be so, the others go on.
fn passed_over((view, place): (VersionId, Position), error: Error) -> Result<()> {
    if error.kind().is_ours() {
        return Err(error);
    }
    tracing::error!(%view, ?place, error = error.chain(), "a push cannot be computed any more");
    Ok(())
}
