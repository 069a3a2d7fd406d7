//! Clearing away the traces of experiments that are gone for good.

use std::time::Duration;

use falaj_store::db::Db;
use falaj_store::worker::Worker;

use uuid::Uuid;

use super::service::lock;
use super::store;

const EVERY: Duration = Duration::from_mins(10);

/// How many traces one transaction deletes, so that others get their turn.
const AT_ONCE: usize = 200;

/// Run again after stopping anywhere, it goes on where it was.
pub(crate) fn sweeper(db: Db) -> Worker {
    Worker::new("trace-sweep", EVERY, move || {
        let db = db.clone();
        async move {
            while !db.read(|tx| store::orphans(tx, 1)).await?.is_empty() {
                db.write(|tx| {
                    let orphans = store::orphans(tx, AT_ONCE)?;
                    // All are of one experiment, and so of one project.
                    if let Some(first) = orphans.first() {
                        lock(tx, first.project, orphans.iter().map(|orphan| &orphan.id))?;
                    }
                    let numbers: Vec<Uuid> = orphans.iter().map(|orphan| orphan.no).collect();
                    store::delete(tx, &numbers, None)
                })
                .await?;
            }
            Ok(())
        }
    })
}
