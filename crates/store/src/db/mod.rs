//! The metadata database: one handle, two engines, one query text.
//!
//! Must hold, on both engines:
//! - `write` returning `Ok` means the change is durable; `Err` means none of it happened.
//! - A failed write never disturbs another one, also when they share a commit.
//! - A read started after a write was acknowledged sees it.
//!
//! Not here: a query builder or an object mapper. Domain code writes SQL in its `store.rs`.

mod config;
mod dialect;
mod held;
mod migrate;
mod postgres;
mod sqlite;
mod tx;
mod value;
mod version;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use falaj_base::{Clock, Error, Result, Timestamp};
use tokio::sync::{oneshot, watch};

pub use config::{DatabaseConfig, Durability, Location};
pub use held::Held;
pub use migrate::{Migration, ModuleMigrations};
pub use postgres::dial as dial_postgres;
pub use tx::Tx;
pub use value::{FromValue, Row, Value, params};
pub use version::MIGRATIONS;

use crate::record::ReplyKey;
use postgres::{Pool, Shared};
use tx::Engine;

/// How often others are looked at that still write.
const SETTLING: Duration = Duration::from_millis(50);

/// The handle to the database. Cheap to clone.
#[derive(Clone)]
pub struct Db(Arc<Inner>);

struct Inner {
    engine: EngineHandle,
    clock: Clock,
    replies: ReplyKey,
    /// Counts this server's successful writes, for those who wait for news.
    commits: watch::Sender<u64>,
}

enum EngineHandle {
    Sqlite(sqlite::Sqlite),
    Postgres(Arc<Pool>),
}

/// What a transaction on PostgreSQL is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
}

impl Kind {
    fn beginning(self) -> &'static str {
        match self {
            Self::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Self::Write => "BEGIN",
        }
    }
}

/// How writes shared their commits: `writes / commits` is the size of one. On SQLite all writes
/// count, on PostgreSQL those of [`Db::write_together`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteStats {
    pub commits: u64,
    /// Those of them that were one statement; none on SQLite.
    pub at_once: u64,
    pub writes: u64,
}

impl Db {
    pub async fn open(location: &Location, config: &DatabaseConfig, clock: Clock) -> Result<Self> {
        let replies = ReplyKey::default();
        let engine = match location {
            Location::Sqlite(path) => {
                EngineHandle::Sqlite(sqlite::Sqlite::open(path, config, &clock, replies.clone())?)
            }
            Location::Postgres(url) => {
                EngineHandle::Postgres(Pool::connect(url.expose(), config).await?)
            }
        };
        Ok(Self(Arc::new(Inner { engine, clock, replies, commits: watch::Sender::new(0) })))
    }

    /// Brings the schema of every module up to date; refuses a store from a newer version.
    pub async fn migrate(&self, modules: &[ModuleMigrations]) -> Result<()> {
        let modules = modules.to_vec();
        self.write(move |tx| migrate::run(tx, &modules)).await
    }

    /// Runs `work` in one transaction and waits until it is durable.
    pub async fn write<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let result = match &self.0.engine {
            EngineHandle::Sqlite(sqlite) => sqlite.writer.write(work).await,
            EngineHandle::Postgres(pool) => self.transact(pool, Kind::Write, work).await,
        };
        if result.is_ok() {
            self.0.commits.send_modify(|count| *count += 1);
        }
        result
    }

    /// Like [`Db::write`], for small writes that come by the thousand. On PostgreSQL those that
    /// wait at the same time share a transaction and its fsync, as all writes do on SQLite.
    ///
    /// `held` is the one row for which the work waits; it is given to the work, which leaves those
    /// columns of it as they are. The work may run more than once; only the last time counts.
    pub async fn write_together<T, F>(&self, held: Held, work: F) -> Result<T>
    where
        F: Fn(&mut Tx<'_>, Option<&Row>) -> Result<T> + Send + Sync + 'static,
        T: Send + 'static,
    {
        let result = match &self.0.engine {
            EngineHandle::Sqlite(sqlite) => {
                let work =
                    move |tx: &mut Tx<'_>| tx.hold(&held).and_then(|row| work(tx, row.as_ref()));
                sqlite.writer.write_again(work).await
            }
            EngineHandle::Postgres(pool) => {
                let work = Arc::new(work);
                match pool.group.write(&self.0, held.clone(), work.clone()).await? {
                    Shared::Done(result) => result,
                    Shared::Alone => {
                        let work = move |tx: &mut Tx<'_>| {
                            tx.hold(&held).and_then(|row| work(tx, row.as_ref()))
                        };
                        return self.write(work).await;
                    }
                }
            }
        };
        if result.is_ok() {
            self.0.commits.send_modify(|count| *count += 1);
        }
        result
    }

    /// Changes whenever this server has committed a write.
    #[must_use]
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.0.commits.subscribe()
    }

    /// Runs `work` on one consistent snapshot. Whatever it writes is discarded.
    pub async fn read<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        match &self.0.engine {
            EngineHandle::Sqlite(sqlite) => {
                let permit = sqlite.readers.permit().await?;
                let inner = self.0.clone();
                blocking(move || {
                    // Held until the connection is back, also when the caller has gone away.
                    let _permit = permit;
                    match &inner.engine {
                        EngineHandle::Sqlite(sqlite) => sqlite.readers.read(&inner.clock, work),
                        EngineHandle::Postgres(_) => Err(Error::internal("the engine changed")),
                    }
                })
                .await
            }
            EngineHandle::Postgres(pool) => self.transact(pool, Kind::Read, work).await,
        }
    }

    /// Like [`Db::read`], for a row or a few that an index finds: so short that handing it to another
    /// thread would take longer. On SQLite it runs on the caller's, if a connection is free: whoever
    /// scans, sorts or counts here keeps all else waiting that runs on that thread.
    pub async fn glance<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let work = match &self.0.engine {
            EngineHandle::Sqlite(sqlite) => {
                match sqlite.readers.read_at_once(&self.0.clock, work) {
                    Ok(read) => return read,
                    Err(work) => work,
                }
            }
            EngineHandle::Postgres(_) => work,
        };
        self.read(work).await
    }

    /// Waits until nothing that began before now is still being written, and so all that was is below
    /// the [`Tx::horizon`]; `false` if others take longer than `patience` to end.
    pub async fn settled(&self, patience: Duration) -> Result<bool> {
        if matches!(self.0.engine, EngineHandle::Sqlite(_)) {
            return Ok(true);
        }
        let now = self.write(|tx: &mut Tx<'_>| tx.version()).await?;
        let until = Instant::now() + patience;
        while self.read(|tx: &mut Tx<'_>| tx.horizon()).await? <= now {
            if Instant::now() >= until {
                return Ok(false);
            }
            tokio::time::sleep(SETTLING).await;
        }
        Ok(true)
    }

    async fn transact<T, F>(&self, pool: &Arc<Pool>, kind: Kind, work: F) -> Result<T>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let place = pool.place().await?;
        let (inner, pool) = (self.0.clone(), pool.clone());
        blocking(move || {
            // Held until the connection is back, also when the caller has gone away.
            let _place = place;
            let mut connection = pool.take()?;
            connection.begin(kind.beginning())?;
            let engine = Engine::Postgres(&mut connection);
            let tx = Tx::new(engine, &inner.clock, inner.replies.get());
            let mut tx = match kind {
                Kind::Read => tx.of_one_moment(),
                Kind::Write => tx,
            };
            let result =
                catch_unwind(AssertUnwindSafe(|| work(&mut tx).and_then(|value| tx.sound(value))))
                    .unwrap_or_else(|_| Err(Error::internal("a transaction panicked")));
            // A connection that cannot end its transaction is broken, and dropped.
            match (result, kind) {
                (Ok(value), Kind::Write) => {
                    connection.end("COMMIT")?;
                    pool.give_back(connection);
                    Ok(value)
                }
                (Ok(value), Kind::Read) => {
                    connection.leave("ROLLBACK")?;
                    pool.give_back(connection);
                    Ok(value)
                }
                (Err(error), _) => {
                    if connection.end("ROLLBACK").is_ok() {
                        pool.give_back(connection);
                    }
                    Err(error)
                }
            }
        })
        .await
    }

    /// Leaves no trace of what was deleted in the engine's own log, as far as that is ours to do:
    /// PostgreSQL's log belongs to its operator.
    pub async fn scrub(&self) -> Result<()> {
        let inner = self.0.clone();
        blocking(move || match &inner.engine {
            EngineHandle::Sqlite(sqlite) => sqlite.empty_log(),
            EngineHandle::Postgres(_) => Ok(()),
        })
        .await
    }

    /// Sets the key that seals remembered replies. Until then none is remembered.
    pub fn seal_replies_with(&self, key: &[u8; 32]) -> Result<()> {
        self.0.replies.set(key)
    }

    pub(crate) fn reply_key(&self) -> &ReplyKey {
        &self.0.replies
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// `sqlite` or `postgresql`, for people.
    #[must_use]
    pub fn engine_name(&self) -> &'static str {
        match self.0.engine {
            EngineHandle::Sqlite(_) => "sqlite",
            EngineHandle::Postgres(_) => "postgresql",
        }
    }

    #[must_use]
    pub fn write_stats(&self) -> WriteStats {
        match &self.0.engine {
            EngineHandle::Sqlite(sqlite) => {
                let counters = sqlite.writer.counters();
                WriteStats {
                    commits: counters.commits.load(Ordering::Relaxed),
                    at_once: 0,
                    writes: counters.writes.load(Ordering::Relaxed),
                }
            }
            EngineHandle::Postgres(pool) => pool.group.stats(),
        }
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Db").field(&self.engine_name()).finish()
    }
}

/// Every caller of a shared commit gets its own copy of the verdict.
fn copy(error: &Error) -> Error {
    let copy = Error::new(error.code(), error.message()).caused_by(error.chain());
    error.wait().into_iter().fold(copy, Error::retry_after)
}

/// Runs blocking work off the async threads; a panic in it is that caller's internal error.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (answer, answered) = oneshot::channel();
    // Boxed, so that all work is of one type: the runtime's code for a task is compiled anew for
    // every type of task, and some hundred reads and writes would each bring kilobytes of it.
    let task: Box<dyn FnOnce() + Send> = Box::new(move || drop(answer.send(work())));
    tokio::task::spawn_blocking(task).await.map_err(Error::internal)?;
    answered.await.map_err(Error::internal)?
}
