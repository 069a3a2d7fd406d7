//! What is known about features beside their values: how fresh they are, what they are like, what
//! they are made of and who uses them, and whether both stores say the same.
//!
//! | module | holds |
//! |---|---|
//! | [`freshness`] | the newest event of a view, and an incident while that is too old |
//! | [`profile`] | statistics of a view's columns, counted when asked for |
//! | [`lineage`] | up to sources; down to services, training sets, datasets, runs and models |
//! | [`skew`] | the latest values beside what history says of the same moment |
//! | [`watch`] | the same again and again, and what was found last |
//!
//! Must hold: an incident begins once and ends once, whichever server notices. What a caller may not
//! read is left out of what is known as well.

pub mod freshness;
pub(crate) mod http;
pub mod lineage;
pub mod metrics;
pub mod profile;
pub mod skew;
pub(crate) mod store;
pub mod watch;

use falaj_base::{Error, Result, code};
use tokio::sync::{Semaphore, SemaphorePermit};

pub use lineage::{LoggedRun, ModelVersion, RunsOfDatasets};

/// How many whole histories are read at a time to learn something about them: whoever asks can read
/// no more of them than training sets are made at once.
#[derive(Debug)]
pub(crate) struct Looking(Semaphore);

impl Looking {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Semaphore::new(at_once.max(1)))
    }

    /// A place among them; refused if there is none.
    fn begin(&self) -> Result<SemaphorePermit<'_>> {
        self.0.try_acquire().map_err(|_| {
            let text = "as many histories are being read as may be (`features.at_once`)";
            Error::new(&code::OVERLOADED, text)
        })
    }

    /// The same for work that can wait.
    async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        self.0.acquire().await.map_err(Error::internal)
    }
}
