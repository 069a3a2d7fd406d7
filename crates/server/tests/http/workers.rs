//! Background work on two servers that share a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use falaj_base::{Clock, Error};
use falaj_server::http::Drain;
use falaj_server::metrics::Metrics;
use falaj_server::workers::Driver;
use falaj_store::db::{DatabaseConfig, Db, Location};
use falaj_store::lease::Leases;
use falaj_store::worker::Worker;
use tokio::sync::Notify;

use crate::port::AT_MOST;

struct Side {
    driver: Driver,
    drain: Drain,
    runs: Arc<AtomicUsize>,
    ran: Arc<Notify>,
}

async fn database(home: &tempfile::TempDir) -> Db {
    let location = Location::Sqlite(home.path().join("test.db"));
    let db = Db::open(&location, &DatabaseConfig::default(), Clock::System).await.unwrap();
    db.migrate(&falaj_store::migrations()).await.unwrap();
    db
}

impl Side {
    fn new(db: &Db, name: &str) -> Self {
        let drain = Drain::new();
        let leases = Leases::new(db.clone(), name);
        let driver = Driver::new(leases, Metrics::new(None, Vec::new()), drain.clone());
        Self { driver, drain, runs: Arc::default(), ran: Arc::default() }
    }

    /// A worker that counts its runs, woken by `signal`.
    fn count(&self, signal: &Arc<Notify>) -> Worker {
        let (runs, ran) = (Arc::clone(&self.runs), Arc::clone(&self.ran));
        Worker::new("count", Duration::from_millis(20), move || {
            runs.fetch_add(1, Ordering::SeqCst);
            ran.notify_one();
            async { Ok(()) }
        })
        .woken_by(Arc::clone(signal))
    }

    async fn next_run(&self) {
        tokio::time::timeout(AT_MOST, self.ran.notified()).await.expect("it runs");
    }
}

#[tokio::test]
async fn one_of_two_servers_works_and_the_other_takes_over() {
    let home = tempfile::tempdir().unwrap();
    let db = database(&home).await;
    let (one, two, signal) = (Side::new(&db, "one"), Side::new(&db, "two"), Arc::default());
    one.driver.start(one.count(&signal));
    one.next_run().await;
    two.driver.start(two.count(&signal));
    for _ in 0..5 {
        one.next_run().await;
    }
    assert_eq!(two.runs.load(Ordering::SeqCst), 0, "the lease is the other's");

    one.drain.start();
    one.driver.finish(AT_MOST).await;
    two.next_run().await;
    two.drain.start();
    two.driver.finish(AT_MOST).await;
}

#[tokio::test]
async fn work_for_every_server_needs_no_lease_and_failure_is_not_the_end() {
    let home = tempfile::tempdir().unwrap();
    let db = database(&home).await;
    let (one, two) = (Side::new(&db, "one"), Side::new(&db, "two"));
    for side in [&one, &two] {
        let signal = Arc::default();
        side.driver.start(side.count(&signal).on_every_server());
        side.next_run().await;
    }
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let again = Arc::new(Notify::new());
    let retried = Arc::clone(&again);
    one.driver.start(Worker::new("fail", Duration::from_millis(10), move || {
        if counted.fetch_add(1, Ordering::SeqCst) > 0 {
            retried.notify_one();
        }
        async { Err(Error::internal("on purpose")) }
    }));
    tokio::time::timeout(AT_MOST, again.notified()).await.expect("it is tried again");
    for side in [one, two] {
        side.drain.start();
        side.driver.finish(AT_MOST).await;
    }
}
