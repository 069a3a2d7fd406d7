//! Reads: each takes a connection of its own, sees one snapshot, and waits for nobody's write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Clock, Error, Result, code};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::control;
use crate::db::tx::{Engine, Tx};

/// How long a read may wait for a free connection.
const READER_WAIT: Duration = Duration::from_secs(10);

pub(in crate::db) struct Readers {
    free: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(in crate::db) fn new(connections: Vec<Connection>) -> Self {
        Self { permits: Arc::new(Semaphore::new(connections.len())), free: Mutex::new(connections) }
    }

    pub(in crate::db) async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        match tokio::time::timeout(READER_WAIT, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(closed)) => Err(Error::internal(closed)),
            Err(_elapsed) => Err(Error::new(&code::OVERLOADED, "too many reads are waiting")
                .retry_after(Duration::from_secs(1))),
        }
    }

    /// Runs `work` on a free connection; the caller holds a permit, so there is one.
    pub(in crate::db) fn read<T>(
        &self,
        clock: &Clock,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let connection = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .ok_or_else(|| Error::internal("a reader permit without a reader"))?;
        let borrowed = Borrowed { readers: self, connection: Some(connection) };
        let connection = borrowed.get()?;
        control(connection, "BEGIN DEFERRED")?;
        work(&mut Tx::new(Engine::Sqlite(connection), clock, None))
    }
}

/// Brings the connection back, with its snapshot released, even when the work panics.
struct Borrowed<'a> {
    readers: &'a Readers,
    connection: Option<Connection>,
}

impl Borrowed<'_> {
    fn get(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or_else(|| Error::internal("the reader is gone"))
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // A reader never commits: whatever its transaction tried to write is undone here.
            let _ = control(&connection, "ROLLBACK");
            self.readers.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
