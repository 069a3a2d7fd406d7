//! The online store of this server, opened when it is first needed and kept up with the log.
//!
//! Must hold:
//! - Nothing is read before every push of the log was applied once since the store was opened.
//! - The position that the store remembers is one that everything before it was applied at.
//! - A push applied right after its commit to our own file is not applied again when the log is read;
//!   to Redis it is, since that may have lost it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falaj_base::{Error, Result, code};
use falaj_online::store::{Embedded, Redis};
use falaj_online::{Batch, Online};
use falaj_store::db::Db;
use falaj_store::worker::Worker;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

use super::config::OnlineConfig;
use super::rows::pack;
use super::shape::{Shape, place};
use crate::definition::VersionId;
use crate::definition::form::Form;
use crate::definition::store::by_id;
use crate::history::{Entry, Position, read_since};

/// The file in the data directory.
const FILE: &str = "online.redb";
/// How often the log is read for pushes to other servers, and rows are made to last.
const EVERY: Duration = Duration::from_secs(1);
/// The most views and applied pushes that are remembered.
const REMEMBERED: usize = 10_000;

/// The store and what is known about it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shelf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: OnlineConfig,
    path: PathBuf,
    db: Db,
    store: OnceCell<Online>,
    /// How far the log was applied; held by whoever reads on.
    follower: AsyncMutex<Option<Position>>,
    applied: Mutex<Applied>,
    shapes: Mutex<HashMap<VersionId, Arc<Shape>>>,
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
    pub(crate) fn new(config: OnlineConfig, db: Db, data_dir: &Path) -> Self {
        Self(Arc::new(Inner {
            config,
            path: data_dir.join(FILE),
            db,
            store: OnceCell::new(),
            follower: AsyncMutex::default(),
            applied: Mutex::default(),
            shapes: Mutex::default(),
        }))
    }

    pub(crate) fn config(&self) -> &OnlineConfig {
        &self.0.config
    }

    /// The store, as far as the log goes.
    pub(crate) async fn store(&self) -> Result<&Online> {
        self.0.store.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Online> {
        let store = if self.0.config.redis.url.is_empty() {
            let (path, config) = (self.0.path.clone(), self.0.config.embedded.clone());
            let open = move || Embedded::open(&path, &config);
            let opened = tokio::task::spawn_blocking(open).await.map_err(Error::internal)?;
            Online::Embedded(opened?)
        } else {
            Online::Redis(Redis::new(&self.0.config.redis)?)
        };
        self.follow(&store).await?;
        Ok(store)
    }

    /// Applies what the log has beyond what was applied, and makes it last.
    async fn follow(&self, store: &Online) -> Result<()> {
        let mut follower = self.0.follower.lock().await;
        let mut from = store.reached().await?;
        let reached = Position { tx: from.tx, seq: from.seq };
        // A store that remembers less than we know has lost rows: it begins again there.
        let mut at = follower.map_or(reached, |at| if reached < at { reached } else { at });
        loop {
            let entries = self.0.db.read(move |tx| read_since(tx, at)).await?;
            let Some(last) = entries.last().map(|entry| entry.position) else { break };
            for entry in &entries {
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
        // Rows that came by themselves (materialised, or pushed and not yet settled in the log).
        store.settle(from, outside(at).max(from)).await.map(drop)
    }

    /// Forgets pushes that the log was read beyond.
    fn pass(&self, at: Position) {
        let mut applied = self.applied();
        applied.passed = at;
        applied.beyond.retain(|position| *position > at);
    }

    async fn replay(&self, store: &Online, entry: &Entry) -> Result<()> {
        let Some(shape) = self.by_number(entry.view).await? else {
            let text = format!("a push to the view version {}, which is not there", entry.view);
            return Err(Error::new(&code::INTEGRITY, text));
        };
        let log = place(entry.position);
        let batch = pack(&shape, &entry.batch()?, entry.at.micros(), log)?;
        store.apply(batch).await.map(drop)
    }

    /// Applies a push that was just committed at this place.
    pub(crate) async fn pushed(&self, batch: Batch, position: Position) -> Result<usize> {
        let store = self.store().await?;
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

    pub(crate) fn shape(
        &self,
        id: VersionId,
        form: &crate::definition::form::ViewForm,
    ) -> Result<Arc<Shape>> {
        if let Some(known) = self.shapes().get(&id) {
            return Ok(known.clone());
        }
        let shape = Arc::new(Shape::of(id, form)?);
        let mut shapes = self.shapes();
        if shapes.len() >= REMEMBERED {
            shapes.clear();
        }
        shapes.insert(id, shape.clone());
        Ok(shape)
    }

    async fn by_number(&self, id: VersionId) -> Result<Option<Arc<Shape>>> {
        if let Some(known) = self.shapes().get(&id) {
            return Ok(Some(known.clone()));
        }
        let found = self.0.db.read(move |tx| by_id(tx, id)).await?;
        match found.map(|(_, definition)| definition.definition) {
            Some(Form::View(form)) => self.shape(id, &form).map(Some),
            _ => Ok(None),
        }
    }

    /// Keeps up with pushes to other servers. Each server has a file of its own; a Redis is kept
    /// up with by all, since doing it twice changes nothing.
    pub(crate) fn worker(&self) -> Worker {
        let ours = self.clone();
        Worker::new("features-online", EVERY, move || {
            let ours = ours.clone();
            async move { ours.follow(ours.store().await?).await }
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
