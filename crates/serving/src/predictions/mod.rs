//! What was predicted, kept for later: a bounded log that never slows an answer.
//!
//! ```text
//! offer    a prediction is laid on a sheet of its thread, column by column, or refused at once and counted
//! gather   sheets of one endpoint and with the same tensors: by rows, by bytes, by age
//! keep     one Parquet file, sealed in the object store of the project's zone, and its row
//! report   outcomes, by the prediction's id, whenever they come
//! expire   files and outcomes older than the endpoint wants them
//! ```
//!
//! Must hold:
//! - Offering waits for nobody who writes. What is in memory is bounded in number and in bytes until it is in a
//!   file; what does not fit, and what could not be written, is counted and told.
//! - Files lie in the zone of their project under the key of their tenant, like every blob, and
//!   are visible only through their row. The row, the claim on the blob and the event are one
//!   transaction.
//! - A prediction that was taken is lost if the server dies before its file is written: the log is
//!   for learning from, not for proof.
//!
//! Not here: which requests are kept (`endpoint` says which share), and the routes.

mod actions;
mod config;
mod expire;
mod file;
mod find;
mod gathered;
pub(crate) mod http;
mod log;
mod outcome;
mod prediction;
mod read;
mod sheet;
mod store;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod testing;
mod writer;

use std::sync::Arc;

use falaj_governance::audit::ReadLog;
use falaj_store::db::Db;
use falaj_store::objects::Objects;

pub use actions::{ACTIONS, PREDICTION_KEEP, PREDICTION_READ, PREDICTION_REPORT};
pub use config::PredictionsConfig;
pub use expire::Expired;
pub use log::{Counts, Log};
pub use outcome::{Came, MAX_OUTCOMES, Outcome};
pub use prediction::{Home, Prediction};
pub use read::MAX_FILES;
pub use store::{File, Wanted};

pub(crate) use find::expirer;
pub(crate) use store::SCHEMA;

/// The predictions of all endpoints. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Predictions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: PredictionsConfig,
    db: Db,
    objects: Objects,
    reads: ReadLog,
    log: Log,
}

impl Predictions {
    /// Writes what is offered, from the first prediction on until all clones of the log are gone.
    #[must_use]
    pub fn start(config: PredictionsConfig, db: Db, objects: Objects, reads: ReadLog) -> Self {
        let writing = (config.clone(), db.clone(), objects.clone());
        let log = Log::new(&config, move |taken| {
            let (config, db, objects) = writing;
            tokio::spawn(writer::run(taken, config, db, objects));
        });
        Self(Arc::new(Inner { config, db, objects, reads, log }))
    }

    /// Where predictions are offered.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    fn config(&self) -> &PredictionsConfig {
        &self.0.config
    }

    fn db(&self) -> &Db {
        &self.0.db
    }

    fn objects(&self) -> &Objects {
        &self.0.objects
    }

    fn reads(&self) -> &ReadLog {
        &self.0.reads
    }
}
