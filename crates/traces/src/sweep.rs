//! Clearing away what belonged to experiments that are gone for good: scorers, issues, and where
//! evaluation datasets belonged. Traces, of which there may be very many, have a sweeper of their own.

use std::time::Duration;

use falaj_store::db::Db;
use falaj_store::worker::Worker;

use crate::evaluation::{dataset, scorer};
use crate::issue;

const EVERY: Duration = Duration::from_mins(10);

/// Run again after stopping anywhere, it finds less to do.
pub(crate) fn sweeper(db: Db) -> Worker {
    Worker::new("evaluation-sweep", EVERY, move || {
        let db = db.clone();
        async move {
            db.write(|tx| {
                dataset::store::clear_orphans(tx)?;
                scorer::store::clear_orphans(tx)?;
                issue::store::clear_orphans(tx)
            })
            .await
            .map(drop)
        }
    })
}
