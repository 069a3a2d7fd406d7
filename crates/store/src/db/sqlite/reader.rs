//! Reads: each takes a connection of its own, sees one snapshot, and waits for nobody's write.
//!
//! A connection reads the whole schema and keeps it, so one is opened when all others are at work
//! and not before: an idle server has one.

use std::panic::{AssertUnwindSafe, catch_unwind};
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
    open: Box<dyn Fn() -> Result<Connection> + Send + Sync>,
}

impl Readers {
    /// Up to `most` connections, each made with `open`; the first one now, to see that it can be.
    pub(in crate::db) fn new(
        most: usize,
        open: impl Fn() -> Result<Connection> + Send + Sync + 'static,
    ) -> Result<Self> {
        Ok(Self {
            free: Mutex::new(vec![open()?]),
            permits: Arc::new(Semaphore::new(most)),
            open: Box::new(open),
        })
    }

    pub(in crate::db) async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        match tokio::time::timeout(READER_WAIT, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(closed)) => Err(Error::internal(closed)),
            Err(_elapsed) => Err(Error::new(&code::OVERLOADED, "too many reads are waiting")
                .retry_after(Duration::from_secs(1))),
        }
    }

    /// Runs `work` on a free connection, or on a new one; the caller holds a permit, so there are
    /// never more than permits.
    pub(in crate::db) fn read<T>(
        &self,
        clock: &Clock,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let connection = self.free().map_or_else(|| (self.open)(), Ok)?;
        self.read_with(connection, clock, work)
    }

    /// Runs `work` if a connection is free this moment, and else gives it back.
    pub(in crate::db) fn read_at_once<T, F>(&self, clock: &Clock, work: F) -> Result<Result<T>, F>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T>,
    {
        let Ok(_permit) = self.permits.try_acquire() else { return Err(work) };
        match self.free() {
            // As on a thread of its own, a panic is this caller's error and nobody else's.
            Some(connection) => {
                let read = AssertUnwindSafe(|| self.read_with(connection, clock, work));
                Ok(catch_unwind(read).unwrap_or_else(|_| Err(Error::internal("a read panicked"))))
            }
            None => Err(work),
        }
    }

    fn free(&self) -> Option<Connection> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn read_with<T>(
        &self,
        connection: Connection,
        clock: &Clock,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_connection_is_opened_when_all_others_are_at_work() {
        let opened = Arc::new(AtomicUsize::new(0));
        let counter = opened.clone();
        let readers = Readers::new(2, move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Connection::open_in_memory().map_err(Error::internal)
        })
        .unwrap();
        let count = || opened.load(Ordering::Relaxed);
        let read = |inner: &dyn Fn() -> Result<()>| readers.read(&Clock::System, |_| inner());
        for _ in 0..3 {
            read(&|| Ok(())).unwrap();
        }
        assert_eq!(count(), 1, "one after the other");
        for _ in 0..3 {
            read(&|| read(&|| Ok(()))).unwrap();
        }
        assert_eq!(count(), 2, "two at once");
    }

    #[test]
    fn what_is_read_at_once_waits_for_no_connection() {
        let readers =
            Readers::new(2, || Connection::open_in_memory().map_err(Error::internal)).unwrap();
        let glance = |_: &mut Tx<'_>| Ok(1);
        let nested = readers.read(&Clock::System, |_| {
            assert!(
                readers.read_at_once(&Clock::System, glance).is_err(),
                "the only one is at work"
            );
            Ok(())
        });
        nested.unwrap();
        assert!(matches!(readers.read_at_once(&Clock::System, glance), Ok(Ok(1))));
        let all = readers.permits.clone().try_acquire_many_owned(2).unwrap();
        assert!(readers.read_at_once(&Clock::System, glance).is_err(), "nobody may read now");
        drop(all);
        let panics = |_: &mut Tx<'_>| -> Result<()> { panic!("in a read") };
        assert!(matches!(readers.read_at_once(&Clock::System, panics), Ok(Err(_))));
        assert!(readers.read_at_once(&Clock::System, glance).is_ok(), "the connection is back");
    }

    #[test]
    fn a_connection_that_cannot_be_opened_is_the_callers_error_and_nobody_elses() {
        let full = AtomicUsize::new(0);
        let readers = Readers::new(2, move || match full.fetch_add(1, Ordering::Relaxed) {
            0 => Connection::open_in_memory().map_err(Error::internal),
            _ => Err(Error::internal("no more descriptors")),
        })
        .unwrap();
        let both = readers.read(&Clock::System, |_| {
            assert!(readers.read(&Clock::System, |_| Ok(())).is_err());
            Ok(())
        });
        both.unwrap();
        readers.read(&Clock::System, |_| Ok(())).unwrap();
    }
}
