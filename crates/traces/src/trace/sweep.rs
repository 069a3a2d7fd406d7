//! Clearing away the traces of experiments that are gone for good.

use std::time::Duration;

use falaj_store::db::Db;
use falaj_store::worker::Worker;

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
                    store::delete(tx, &orphans)
                })
                .await?;
            }
            Ok(())
        }
    })
}
