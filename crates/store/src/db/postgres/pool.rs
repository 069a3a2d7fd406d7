//! The connections, shared by all transactions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result, code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::Connection;
use super::group::Group;
use super::memory::Memory;
use super::{DatabaseConfig, Target};

/// How long a transaction may wait for a connection, and a connection for its server.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// A connection that was idle for longer may be dead without anybody having said so. A statement that writes
/// at once would then end nobody knows how; a question that comes first finds out before anything is at stake.
const QUIET: Duration = Duration::from_secs(5);

pub(in crate::db) struct Pool {
    target: Target,
    places: Arc<Semaphore>,
    /// And since when they are.
    idle: Mutex<Vec<(Connection, Instant)>>,
    pub(in crate::db) group: Group,
}

impl Pool {
    /// A pool that has reached its server once.
    pub(in crate::db) async fn connect(url: &str, config: &DatabaseConfig) -> Result<Arc<Self>> {
        let pool = Arc::new(Self {
            target: Target::new(url, config)?,
            places: Arc::new(Semaphore::new(config.connections.max(1))),
            idle: Mutex::default(),
            group: Group::new(config),
        });
        let first = pool.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let connection = first.take()?;
            first.give_back(connection);
            Ok(())
        });
        opened.await.map_err(Error::internal)??;
        Ok(pool)
    }

    /// The right to one of the connections.
    pub(in crate::db) async fn place(&self) -> Result<OwnedSemaphorePermit> {
        match tokio::time::timeout(WAIT, self.places.clone().acquire_owned()).await {
            Ok(place) => place.map_err(Error::internal),
            Err(late) => Err(silent(late)),
        }
    }

    /// A connection that works, for whoever has a place; on a thread that may block.
    pub(in crate::db) fn take(&self) -> Result<Connection> {
        loop {
            // Taken apart from the test, which talks to the server.
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((mut connection, since)) = idle else {
                return Connection::open(&self.target);
            };
            if since.elapsed() > QUIET {
                connection.memory = Memory::default();
            }
            if connection.is_open() {
                return Ok(connection);
            }
        }
    }

    /// A connection whose transaction is over, to be used again.
    pub(in crate::db) fn give_back(&self, connection: Connection) {
        let now = Instant::now();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((connection, now));
    }
}

/// The server does not answer, or has no room.
pub(super) fn silent(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(&code::UNAVAILABLE, "the metadata database does not answer")
        .retry_after(Duration::from_secs(2))
        .caused_by(cause)
}
